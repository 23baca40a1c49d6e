package containercheckpoint_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/dcnlab/spot-training-operator/internal/checkpointbackup"
	"github.com/dcnlab/spot-training-operator/internal/containercheckpoint"
	crds "github.com/dcnlab/spot-training-operator/test/fakes/checkpointbackup"
	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
)

var (
	api     = apiserver.New()
	scheme  = apiserver.Scheme()
	install sync.Once
)

func TestMain(m *testing.M) { api.Main(m) }

// connect to the API server as an administrator. It has config/checkpoint-agent, as an admin applies it: the tests' agents have no more
// rights than that gives.
func connect(t *testing.T) client.Client {
	t.Helper()
	c, err := client.New(api.Config(t), client.Options{Scheme: scheme})
	require.NoError(t, err)
	install.Do(func() {
		rendered, err := exec.Command(filepath.Join(apiserver.Binaries(), "kubectl"), "kustomize", filepath.Join("..", "..", "config", "checkpoint-agent")).Output()
		require.NoError(t, err)
		decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(rendered), 4096)
		for {
			object := &unstructured.Unstructured{}
			if err := decoder.Decode(object); errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			require.NoError(t, c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("test")))
		}
		crd, err := crds.CRD()
		require.NoError(t, err)
		require.NoError(t, envtest.WaitForCRDs(api.Config(t), []*apiextensionsv1.CustomResourceDefinition{crd}, envtest.CRDInstallOptions{MaxTime: patience}))
	})
	return c
}

const agentUser = "spot-checkpoint-agent"

const patience = 3 * time.Minute

// node is a node with its kubelet, which stands in for a real one (test/suites/e2e has that): it writes archives as the kubelet
// calls them, and can be told to fail or to wait.
type node struct {
	t *testing.T
	client.Client

	namespace, name  string
	kubelet          *httptest.Server
	registry         *httptest.Server
	directory, token string

	mutex   sync.Mutex
	asked   []string
	refuses string
	hold    chan struct{}
	files   map[string]string
}

func newNode(t *testing.T, wrap func(http.Handler) http.Handler) *node {
	t.Helper()
	c := connect(t)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "agent-"}}
	require.NoError(t, c.Create(t.Context(), ns))
	n := &node{
		t: t, Client: c, namespace: ns.Name, name: "node-" + ns.Name, directory: t.TempDir(),
		files: map[string]string{"spec.dump": "{}", "config.dump": "{}", "status.dump": "{}", "checkpoint/pages-1.img": strings.Repeat("memory", 1000)},
	}
	n.token = filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(n.token, []byte("the-token\n"), 0o600))
	n.kubelet = httptest.NewTLSServer(http.HandlerFunc(n.checkpoint))
	t.Cleanup(n.kubelet.Close)
	store := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	if wrap != nil {
		store = wrap(store)
	}
	n.registry = httptest.NewServer(store)
	t.Cleanup(n.registry.Close)
	return n
}

func (n *node) host() string { return strings.TrimPrefix(n.registry.URL, "http://") }

func (n *node) checkpoint(w http.ResponseWriter, r *http.Request) {
	n.mutex.Lock()
	n.asked = append(n.asked, r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization"))
	refuses, hold := n.refuses, n.hold
	n.mutex.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-r.Context().Done():
			return
		}
	}
	if refuses != "" {
		http.Error(w, refuses, http.StatusInternalServerError)
		return
	}
	part := strings.Split(r.URL.Path, "/")
	file := fmt.Sprintf("checkpoint-%s_%s-%s-%s.tar", part[3], part[2], part[4], time.Now().Format(time.RFC3339))
	if err := n.write(file, part[2], part[3], part[4]); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	fmt.Fprintf(w, `{"items":[%q]}`, path.Join("/var/lib/kubelet/checkpoints", file))
}

// write an archive of a container, named by its namespace, its pod and itself.
func (n *node) write(name string, of ...string) error {
	file, err := os.Create(filepath.Join(n.directory, name))
	if err != nil {
		return err
	}
	archive := tar.NewWriter(file)
	for name, content := range n.files {
		if name == "spec.dump" && len(of) == 3 {
			content = fmt.Sprintf(`{"annotations":{"io.kubernetes.cri.sandbox-namespace":%q,"io.kubernetes.cri.sandbox-name":%q,"io.kubernetes.cri.container-name":%q}}`,
				of[0], of[1], of[2])
		}
		if err := archive.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(content))}); err != nil {
			return err
		}
		if _, err := io.WriteString(archive, content); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), file.Close())
}

func (n *node) calls() int {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	return len(n.asked)
}

func (n *node) set(change func()) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	change()
}

// limited has the rights of the agent on a node, as the token of its pod says.
func limited(t *testing.T, node string) *rest.Config {
	t.Helper()
	config := api.Config(t)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + agentUser + ":" + agentUser, Extra: map[string][]string{"authentication.kubernetes.io/node-name": {node}},
	}
	return config
}

// agent starts the node's agent, and returns what stops it.
func (n *node) agent(change ...func(*containercheckpoint.Agent)) (stop func()) {
	n.t.Helper()
	mgr, err := ctrl.NewManager(limited(n.t, n.name), ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	require.NoError(n.t, err)
	backups, err := checkpointbackup.ForManager(mgr)
	require.NoError(n.t, err)
	agent := &containercheckpoint.Agent{
		Settings: containercheckpoint.Settings{
			Node: n.name, Concurrency: 2, Directory: n.directory, Programs: n.t.TempDir(), PushTimeout: patience, Insecure: containercheckpoint.Insecure{n.host()},
		},
		Kubelet: containercheckpoint.Kubelet{Address: strings.TrimPrefix(n.kubelet.URL, "https://"), TokenFile: n.token, Timeout: patience},
		Backups: backups, Client: mgr.GetClient(), Direct: mgr.GetAPIReader(), Clock: clock.RealClock{},
	}
	for _, c := range change {
		c(agent)
	}
	require.NoError(n.t, agent.SetupWithManager(mgr))
	ctx, cancel := context.WithCancel(n.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	stop = sync.OnceFunc(func() { cancel(); assert.NoError(n.t, <-ended) })
	n.t.Cleanup(stop)
	return stop
}

func (n *node) pod(name string) *corev1.Pod {
	n.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: n.namespace, Name: name},
		Spec:       corev1.PodSpec{NodeName: n.name, Containers: []corev1.Container{{Name: "train", Image: "i"}}},
	}
	require.NoError(n.t, n.Create(n.t.Context(), pod))
	pod.Status.Phase = corev1.PodRunning
	require.NoError(n.t, n.Status().Update(n.t.Context(), pod))
	return pod
}

func (n *node) ask(name, pod string, change ...func(*checkpointbackup.Spec)) client.ObjectKey {
	n.t.Helper()
	b := checkpointbackup.Backup{Key: client.ObjectKey{Namespace: n.namespace, Name: name}, Spec: checkpointbackup.Spec{
		Schedule: checkpointbackup.Immediately, Pod: client.ObjectKey{Namespace: n.namespace, Name: pod},
		Resource:   checkpointbackup.Resource{APIVersion: "batch/v1", Kind: "Job", Namespace: n.namespace, Name: "j"},
		Registry:   checkpointbackup.Registry{URL: n.host(), Repository: "team/checkpoints"},
		Containers: []checkpointbackup.Container{{Name: "train", Image: n.host() + "/team/checkpoints:" + name}},
	}}
	for _, c := range change {
		c(&b.Spec)
	}
	require.NoError(n.t, n.Create(n.t.Context(), checkpointbackup.Encode(b, "v1")))
	return b.Key
}

func (n *node) read(key client.ObjectKey) checkpointbackup.Backup {
	n.t.Helper()
	object := checkpointbackup.Object("v1")
	require.NoError(n.t, n.Get(n.t.Context(), key, object))
	return checkpointbackup.Decode(object)
}

func (n *node) reaches(key client.ObjectKey, phase checkpointbackup.Phase) checkpointbackup.Backup {
	n.t.Helper()
	var last checkpointbackup.Backup
	require.Eventually(n.t, func() bool {
		last = n.read(key)
		return last.Status.Phase == phase || last.Status.Phase.Ended()
	}, patience, 50*time.Millisecond, "waiting for %s", phase)
	require.Equal(n.t, phase, last.Status.Phase, last.Status.Message)
	return last
}

func (n *node) left() []string {
	n.t.Helper()
	files, err := filepath.Glob(filepath.Join(n.directory, "*"))
	require.NoError(n.t, err)
	return files
}

func (n *node) image(reference string) v1.Image {
	n.t.Helper()
	tag, err := name.NewTag(reference)
	require.NoError(n.t, err)
	pushed, err := remote.Image(tag)
	require.NoError(n.t, err)
	return pushed
}

func TestACheckpointBecomesAnImage(t *testing.T) {
	n := newNode(t, nil)
	n.pod("bert-0")
	n.agent()

	key := n.ask("one", "bert-0")
	done := n.reaches(key, checkpointbackup.Completed)

	reference := n.host() + "/team/checkpoints:one"
	assert.Equal(t, []checkpointbackup.Container{{Name: "train", Image: reference}}, done.Status.Images)
	assert.WithinDuration(t, time.Now(), done.Status.Completed, patience)
	assert.Equal(t, []string{"POST /checkpoint/" + n.namespace + "/bert-0/train Bearer the-token"}, n.asked)
	assert.Empty(t, n.left(), "the archive is removed")

	pushed := n.image(reference)
	manifest, err := pushed.Manifest()
	require.NoError(t, err)
	assert.Equal(t, "train", manifest.Annotations["org.criu.checkpoint.container.name"], "by this a runtime knows a checkpoint")
	assert.Equal(t, "application/vnd.oci.image.manifest.v1+json", string(manifest.MediaType))
	layers, err := pushed.Layers()
	require.NoError(t, err)
	require.Len(t, layers, 1)
	content, err := layers[0].Uncompressed()
	require.NoError(t, err)
	held := map[string]string{}
	for reader := tar.NewReader(content); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		text, err := io.ReadAll(reader)
		require.NoError(t, err)
		held[header.Name] = string(text)
	}
	assert.Contains(t, held["spec.dump"], n.namespace)
	held["spec.dump"] = n.files["spec.dump"]
	assert.Equal(t, n.files, held)
	configured, err := pushed.ConfigFile()
	require.NoError(t, err)
	assert.Equal(t, n.namespace+"/bert-0", configured.Config.Labels["training.dcnlab.com/checkpoint-of-pod"])
}

func TestAnAgentThatWasStoppedTakesItUpAgain(t *testing.T) {
	n := newNode(t, nil)
	n.pod("bert-0")
	n.set(func() { n.hold = make(chan struct{}) })
	stop := n.agent()
	key := n.ask("interrupted", "bert-0")
	n.reaches(key, checkpointbackup.Checkpointing)
	require.Eventually(t, func() bool { return n.calls() == 1 }, patience, 50*time.Millisecond)
	stop()
	assert.Equal(t, checkpointbackup.Checkpointing, n.read(key).Status.Phase, "it is not given up")
	stray := fmt.Sprintf("checkpoint-bert-0_%s-train-%s.tar", n.namespace, time.Now().Add(-time.Hour).Format(time.RFC3339))
	require.NoError(t, n.write(stray, n.namespace, "bert-0", "train"))
	n.set(func() { n.hold = nil })

	n.agent()

	n.reaches(key, checkpointbackup.Completed)
	assert.Equal(t, 2, n.calls(), "it is taken again")
	assert.Empty(t, n.left(), "what the first one left behind is removed")
	object := checkpointbackup.Object("v1")
	require.NoError(t, n.Get(t.Context(), key, object))
	assert.Equal(t, n.name+"/2", object.GetAnnotations()[containercheckpoint.Claim])
}

func TestAnArchiveIsPushedByTheNextAgent(t *testing.T) {
	var mutex sync.Mutex
	closed := true
	n := newNode(t, func(inner http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mutex.Lock()
			hang := closed && r.Method != http.MethodGet
			mutex.Unlock()
			if hang {
				<-r.Context().Done()
				return
			}
			inner.ServeHTTP(w, r)
		})
	})
	n.pod("bert-0")
	stop := n.agent()
	key := n.ask("half", "bert-0")
	n.reaches(key, checkpointbackup.ImagePushing)
	stop()
	require.Len(t, n.left(), 1)
	mutex.Lock()
	closed = false
	mutex.Unlock()

	n.agent()

	n.reaches(key, checkpointbackup.Completed)
	assert.Equal(t, 1, n.calls(), "the checkpoint that was there is used")
	assert.Empty(t, n.left())
}

func TestWhatAnotherAgentHasBegunIsLeftAlone(t *testing.T) {
	n := newNode(t, nil)
	n.pod("bert-0")
	n.agent(func(a *containercheckpoint.Agent) { a.Yield = 2 * time.Second })
	theirs := n.ask("theirs", "bert-0")
	object := checkpointbackup.Object("v1")
	require.NoError(t, n.Get(t.Context(), theirs, object))
	object.Object["status"] = checkpointbackup.EncodeStatus(checkpointbackup.Status{Phase: checkpointbackup.Checkpointing, Message: "theirs"})
	require.NoError(t, n.Status().Update(t.Context(), object))

	ours := n.ask("ours", "bert-0")
	n.reaches(ours, checkpointbackup.Completed)

	assert.Equal(t, checkpointbackup.Status{Phase: checkpointbackup.Checkpointing, Message: "theirs"}, n.read(theirs).Status)
	assert.Equal(t, 1, n.calls())
}

func TestAPodIsCheckpointedOnceAtATime(t *testing.T) {
	n := newNode(t, nil)
	n.pod("bert-0")
	hold := make(chan struct{})
	n.set(func() { n.hold = hold })
	n.agent()
	first := n.ask("first", "bert-0")
	n.reaches(first, checkpointbackup.Checkpointing)
	second := n.ask("second", "bert-0")
	require.Never(t, func() bool { return n.calls() > 1 || n.read(second).Status.Phase != "" }, time.Second, 50*time.Millisecond)
	close(hold)
	n.reaches(first, checkpointbackup.Completed)
	n.reaches(second, checkpointbackup.Completed)
}

func TestAPodThatIsToStopIsDeleted(t *testing.T) {
	n := newNode(t, nil)
	pod := n.pod("bert-0")
	n.agent()
	n.reaches(n.ask("stop", "bert-0", func(s *checkpointbackup.Spec) { s.StopPod = true }), checkpointbackup.CompletedPodDeleted)
	err := n.Get(t.Context(), client.ObjectKeyFromObject(pod), pod)
	assert.True(t, apierrors.IsNotFound(err) || pod.DeletionTimestamp != nil)
}

// Who takes over the agent of one node has its token.
func TestTheAgentOfOneNodeDeletesNoPodOfAnother(t *testing.T) {
	n := newNode(t, nil)
	own, other := n.pod("own"), n.pod("other")
	agent, err := client.New(limited(t, "another-"+n.name), client.Options{Mapper: n.RESTMapper(), Scheme: scheme})
	require.NoError(t, err)
	require.ErrorContains(t, agent.Delete(t.Context(), other), "may delete pods of the node that it runs on and no others")
	agent, err = client.New(limited(t, n.name), client.Options{Mapper: n.RESTMapper(), Scheme: scheme})
	require.NoError(t, err)
	require.NoError(t, agent.Delete(t.Context(), own))
}

func TestFailuresAreToldWithTheirRemedy(t *testing.T) {
	n := newNode(t, func(inner http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			user, password, _ := r.BasicAuth()
			if strings.HasPrefix(r.URL.Path, "/v2/closed/") && (user != "robot" || password != "right") {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			if r.URL.Path == "/v2/" {
				w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			inner.ServeHTTP(w, r)
		})
	})
	n.pod("bert-0")
	n.agent()
	closed := func(s *checkpointbackup.Spec) { s.Registry.Repository, s.Containers[0].Image = "closed", "closed:one" }
	secret := func(name, password string) {
		text := fmt.Sprintf(`{"auths":{"http://%s/v1/":{"username":"robot","password":%q}}}`, n.host(), password)
		require.NoError(t, n.Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: n.namespace, Name: name}, Type: corev1.SecretTypeDockerConfigJson,
			StringData: map[string]string{corev1.DockerConfigJsonKey: text},
		}))
	}
	with := func(name string) func(*checkpointbackup.Spec) {
		return func(s *checkpointbackup.Spec) { closed(s); s.Registry.Secret.Name = name }
	}
	secret("right", "right")
	secret("wrong", "not-the-password")
	require.NoError(t, n.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: n.namespace, Name: "opaque"}}))

	forbidden := n.reaches(n.ask("forbidden", "bert-0", with("right")), checkpointbackup.Failed)
	assert.Contains(t, forbidden.Status.Message, "may not read Secrets in namespace "+n.namespace+": run kubectl -n "+n.namespace+" create rolebinding")
	require.NoError(t, n.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: n.namespace, Name: "registry"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "spot-checkpoint-agent-registry"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: agentUser, Name: agentUser}},
	}))
	require.Eventually(t, func() bool {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "system:serviceaccount:" + agentUser + ":" + agentUser,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: n.namespace, Verb: "get", Resource: "secrets"},
		}}
		return n.Create(t.Context(), review) == nil && review.Status.Allowed
	}, patience, 50*time.Millisecond, "the API server knows the binding")
	n.reaches(n.ask("right", "bert-0", with("right")), checkpointbackup.Completed)
	for name, test := range map[string]struct {
		change func(*checkpointbackup.Spec)
		says   string
	}{
		"anonymous": {closed, "it wants credentials: name a Secret"},
		"wrong":     {with("wrong"), "it refuses the credentials of Secret wrong: give them the right to push to closed"},
		"missing":   {with("missing"), "there is no Secret missing in namespace " + n.namespace},
		"opaque":    {with("opaque"), "Secret opaque is of type Opaque without .dockerconfigjson"},
	} {
		failed := n.reaches(n.ask(name, "bert-0", test.change), checkpointbackup.Failed)
		assert.Contains(t, failed.Status.Message, test.says)
		assert.NotContains(t, failed.Status.Message, "not-the-password")
	}
	for name, test := range map[string]struct{ refuses, says string }{
		"no-criu":   {"rpc error: code = Unknown desc = CRIU binary not found or too old (<31600). Failed to checkpoint container", "install CRIU 4.1 or newer"},
		"no-space":  {"write /var/lib/containerd/x: no space left on device", "the node's disk is full"},
		"no-criapi": {"rpc error: code = Unimplemented desc = unknown method CheckpointContainer", "containerd 2.0 or newer"},
		"sockets":   {"checkpointing container failed: criu failed: type NOTIFY errno 0", "open TCP connections"},
	} {
		n.set(func() { n.refuses = test.refuses })
		failed := n.reaches(n.ask(name, "bert-0"), checkpointbackup.Failed)
		assert.Contains(t, failed.Status.Message, test.says)
		assert.Contains(t, failed.Status.Message, "node "+n.name)
	}
	n.set(func() { n.refuses = ""; delete(n.files, "config.dump") })
	failed := n.reaches(n.ask("unsound", "bert-0"), checkpointbackup.Failed)
	assert.Contains(t, failed.Status.Message, "has no config.dump")
	assert.Empty(t, n.left(), "nothing is left of those that failed")
}
