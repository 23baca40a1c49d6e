package chaos

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/cloud"
	"github.com/dcnlab/spot-training-operator/internal/cloud/inventory"
	"github.com/dcnlab/spot-training-operator/internal/nodenotice"
	"github.com/dcnlab/spot-training-operator/test/fakes/fakegce"
	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
	"github.com/dcnlab/spot-training-operator/test/harness/installations"
	"github.com/dcnlab/spot-training-operator/test/harness/operator"
	"github.com/dcnlab/spot-training-operator/test/harness/process"
)

const (
	// managerNamespace and managerAccount are where and who the manager is.
	managerNamespace = "spot-training-operator-system"
	managerAccount   = "spot-training-operator-controller-manager"

	// patience bounds every wait. Restarts wait up to five minutes after many failures.
	patience = 8 * time.Minute

	// report is the time that is left to tell what failed before go test ends all.
	report = 30 * time.Second

	// steadyNodes are there all the time.
	steadyNodes = 3

	// graceOfMany is how long a node is silent before it is not ready where many seeds make the machine slow.
	graceOfMany = 20 * time.Second
)

// nodeGrace is how long a node is silent before it is not ready. For a single seed of make test half of it will do.
func nodeGrace() time.Duration {
	if os.Getenv("CHAOS_SEEDS") == "" {
		return graceOfMany / 2
	}
	return graceOfMany
}

var scheme = apiserver.Scheme(mlv1.AddToScheme, spotv1alpha1.AddToScheme, aiplatformv1alpha1.AddToScheme)

// world is a cluster with the operator. Several seeds live in it, one after another.
type world struct {
	client.Client // of the administrator

	t       *testing.T
	folder  string
	config  *rest.Config
	compute *fakegce.Server
	proxy   *proxy
	nodes   *kubelets
	watcher *watcher
	faults  *tally
	checks  *tally

	program    string
	clock      *clock // of the managers
	kubeconfig string
	webhooks   *installations.Webhooks
	metrics    string // address
	etcd       string // URL

	mu       sync.Mutex // held while the manager is stopped or started
	manager  *process.Server
	down     bool
	closed   bool // no manager is started any more
	restarts sync.WaitGroup

	beside  *process.Server // a second manager
	alone   sync.Mutex      // not held while it runs
	pairs   pairs           // when it ran
	leaving sync.WaitGroup  // namespaces whose end is awaited

	lastWrite atomic.Int64     // of the manager, in Unix nanoseconds
	read      map[string]int64 // how far the log files were read

	noting sync.Mutex
	wrong  []string
}

func newWorld(t *testing.T, faults, checks *tally) *world {
	t.Helper()
	w := &world{
		t: t, folder: t.TempDir(), faults: faults, checks: checks, metrics: process.FreePort(t, process.AnyPort), read: map[string]int64{},
	}
	w.webhooks = installations.NewWebhooks(t, w.folder)
	w.clock = newClock(t, w.folder)
	if wantsClock() {
		var err error
		w.program, err = programWithClock()
		require.NoError(t, err)
	} else {
		w.program = operator.Program(t)
	}
	server := apiserver.Start(t, apiserver.OwnCRDs,
		apiserver.Flag("endpoint-reconciler-type", "none"),
		apiserver.Flag("event-ttl", "10m"), // so that a soak does not take the events of its first hour for growth
		apiserver.Flag("default-not-ready-toleration-seconds", "2"), apiserver.Flag("default-unreachable-toleration-seconds", "2"))
	w.config, w.etcd = server.Config(t), server.Etcd()
	var err error
	w.Client, err = client.New(w.config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	w.compute = fakegce.Start(t, fakegce.Options{
		Latency: fakegce.Latency{Notice: 4 * time.Second, Jitter: 0.9},
		Hooks:   fakegce.Hooks{OnRunning: w.instanceRuns, OnPreempted: w.instanceNoticed, OnGone: w.instanceGone},
	})
	w.nodes = newKubelets(w.Client, faults, checks, newHistory(), w.note)
	w.install()
	w.startKubernetes(server)
	w.proxy = newProxy(t, w.config, w.token(), w.webhooks.Address, faults, w.killManager)
	w.watcher = startWatcher(w)
	w.nodes.cached = w.watcher.objects

	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { w.nodes.run(ctx) })
	running.Go(func() { w.followWrites(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	for i := range steadyNodes {
		require.NoError(t, w.nodes.join(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", i)}}))
	}
	w.startManagers()
	return w
}

// note notes what must not be.
func (w *world) note(format string, arguments ...any) {
	w.noting.Lock()
	defer w.noting.Unlock()
	w.wrong = append(w.wrong, fmt.Sprintf(format, arguments...))
}

// noted returns what was noted, and forgets it.
func (w *world) noted() []string {
	w.noting.Lock()
	defer w.noting.Unlock()
	noted := w.wrong
	w.wrong = nil
	return noted
}

// install makes what kubectl apply -k config/default makes, but for the manager's pod.
func (w *world) install() {
	t := w.t
	for _, object := range installations.Kustomize(t, "default").Objects {
		if object.GetObjectKind().GroupVersionKind().Kind == "CustomResourceDefinition" {
			continue
		}
		w.webhooks.Redirect(t, object)
		require.NoError(t, client.IgnoreAlreadyExists(w.Create(t.Context(), object)), "%s", object.GetName())
	}
	for _, object := range installations.Decode(t, gracePolicy()) {
		require.NoError(t, w.Create(t.Context(), object))
	}
	info := clientcmdapi.NewConfig()
	info.Clusters[""] = &clientcmdapi.Cluster{Server: "https://10.0.0.1:6443", CertificateAuthorityData: w.config.CAData}
	text, err := clientcmd.Write(*info)
	require.NoError(t, err)
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespacePublic}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: corev1.NamespaceNodeLease}},
		&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "cluster-info", Namespace: metav1.NamespacePublic}, Data: map[string]string{"kubeconfig": string(text)},
		},
	} {
		require.NoError(t, client.IgnoreAlreadyExists(w.Create(t.Context(), object)))
	}
}

// gracePolicy shortens the time that pods have to end, since the pods of a dead node are given up only after that. The manager whose clock is
// ahead must not take a kubelet for dead that is not, as Kubernetes' own controllers would.
func gracePolicy() string {
	seconds := 5
	if wantsClock() {
		seconds = 15
	}
	return fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: short-grace}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}]
  mutations:
  - patchType: JSONPatch
    jsonPatch: {expression: '[JSONPatch{op: "add", path: "/spec/terminationGracePeriodSeconds", value: %d}]'}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: short-grace}
spec: {policyName: short-grace}
`, seconds)
}

// controllers are those of Kubernetes that this workload needs.
const controllers = "clusterrole-aggregation-controller,garbage-collector-controller,job-controller,namespace-controller," +
	"node-lifecycle-controller,pod-garbage-collector-controller,resourcequota-controller,root-ca-certificate-publisher-controller," +
	"serviceaccount-controller,taint-eviction-controller,token-cleaner-controller,ttl-after-finished-controller"

// startKubernetes starts Kubernetes' own controllers and scheduler.
func (w *world) startKubernetes(server *apiserver.Server) {
	for program, arguments := range map[string][]string{
		"kube-controller-manager": {
			"--controllers=" + controllers, "--node-monitor-grace-period=" + nodeGrace().String(), "--node-monitor-period=1s",
			"--node-startup-grace-period=" + nodeGrace().String(), "--use-service-account-credentials=false",
		},
		"kube-scheduler": nil,
	} {
		kubeconfig := filepath.Join(w.folder, program+".kubeconfig")
		require.NoError(w.t, os.WriteFile(kubeconfig, server.KubeconfigOf(w.t, "system:"+program, "system:masters"), 0o600))
		process.New(w.t, process.Options{
			Name: program, Log: filepath.Join(w.folder, program+".log"), Stop: syscall.SIGTERM, Ready: func() error { return nil },
			Command: func() *exec.Cmd {
				return exec.Command(filepath.Join(apiserver.Binaries(), program), append(slices.Clone(arguments),
					"--kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig,
					"--leader-elect=false", "--secure-port=0", "--kube-api-qps=500", "--kube-api-burst=500")...)
			},
		})
	}
}

// startManagers starts the manager as its ServiceAccount. The one beside it is only made ready.
func (w *world) startManagers() {
	w.kubeconfig = w.writeKubeconfig()
	w.beside = w.launch("manager-beside", process.FreePort(w.t, process.AnyPort), "0")
	w.beside.Kill()
	w.manager = w.launch("manager", w.proxy.front.manager, w.metrics)
	ctx, cancel := context.WithCancel(context.Background())
	var supervised sync.WaitGroup
	supervised.Go(func() { w.supervise(ctx) })
	w.t.Cleanup(func() { // before that of the manager, which is not to be started again
		cancel()
		supervised.Wait()
		w.mu.Lock()
		w.closed = true
		w.mu.Unlock()
		w.restarts.Wait()
		w.leaving.Wait()
		w.alone.Lock()
	})
}

// launch starts a manager, with the settings of an installation that do not take minutes.
func (w *world) launch(name, webhook, metrics string) *process.Server {
	port := webhook[strings.LastIndex(webhook, ":")+1:]
	return process.New(w.t, process.Options{
		Name: name, Log: filepath.Join(w.folder, name+".log"), Stop: syscall.SIGTERM, Ready: func() error { return nil },
		Command: func() *exec.Cmd {
			command := exec.Command(w.program, "manager", "--leader-elect=false", "--metrics-bind-address="+metrics, "--metrics-secure=false", "--health-probe-bind-address=0",
				"--webhook-cert-mode=self", "--webhook-bind-host=127.0.0.1", "--webhook-port="+port, "--webhook-cert-hosts=127.0.0.1",
				"--gcp-endpoint="+w.compute.URL(), "--cloud-list-interval=1s", "--progress-interval=1s")
			command.Env = append(os.Environ(), "KUBECONFIG="+w.kubeconfig, "POD_NAMESPACE="+managerNamespace, clockVariable+"="+w.clock.file)
			return command
		},
	})
}

// killManager kills the manager in the middle of what it does, and has another one started.
func (w *world) killManager() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down || w.closed {
		return
	}
	w.down = true
	w.manager.Kill()
	w.restarts.Go(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.closed {
			return
		}
		w.proxy.restarted()
		if err := w.manager.TryStart(); err != nil {
			w.note("%v", err)
		}
		w.down = false
	})
}

// supervise starts a manager again that ended by itself, as the kubelet of its node does. It may do so only while it starts and faults keep
// it from reading what it needs first.
func (w *world) supervise(ctx context.Context) {
	was := false // whether there were faults when it was looked at last: it may have ended then
	for ctx.Err() == nil {
		w.mu.Lock()
		is, ended := w.proxy.on.Load(), !w.down && w.manager.Ended()
		w.mu.Unlock()
		if ended {
			if last := w.endOfLog(); !is && !was || !strings.HasPrefix(last, "spot-training-operator: set up ") {
				w.note("the manager ended by itself; its log ends with %s", last)
			}
			w.killManager()
		}
		was = is
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// endOfLog is the last line of the manager.
func (w *world) endOfLog() string {
	text, _ := os.ReadFile(filepath.Join(w.folder, "manager.log"))
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}

// followWrites notes when the manager last wrote.
func (w *world) followWrites(ctx context.Context) {
	last := int64(-1)
	for ctx.Err() == nil {
		if writes := w.proxy.writes.Load(); writes != last {
			last = writes
			w.lastWrite.Store(time.Now().UnixNano())
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// quiet is how long the manager has not written.
func (w *world) quiet() time.Duration { return time.Since(time.Unix(0, w.lastWrite.Load())) }

// pause lets the world go on.
func (w *world) pause(d time.Duration) {
	select {
	case <-w.t.Context().Done():
	case <-time.After(d):
	}
}

// token is one of the manager's ServiceAccount.
func (w *world) token() string {
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](24 * 3600)}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: managerAccount, Namespace: managerNamespace}}
	require.NoError(w.t, w.SubResource("token").Create(w.t.Context(), account, token))
	return token.Status.Token
}

// writeKubeconfig writes that of the manager, by way of the proxy.
func (w *world) writeKubeconfig() string {
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: w.proxy.server.URL}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", Namespace: managerNamespace}
	config.CurrentContext = "x"
	path := filepath.Join(w.folder, "manager.kubeconfig")
	require.NoError(w.t, clientcmd.WriteToFile(*config, path))
	return path
}

// instanceRuns and instanceGone are told by the provider. The node joins as the script of the instance has it.
func (w *world) instanceRuns(i fakegce.Instance) {
	owner, _ := inventory.OwnerOf(&cloud.Instance{Name: i.Name, Labels: i.Labels})
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: i.Name, Labels: map[string]string{
			spotv1alpha1.LabelSpotInstanceVM: owner.VM.Name, spotv1alpha1.LabelSpotInstanceVMNamespace: owner.VM.Namespace,
		}},
		Spec: corev1.NodeSpec{
			ProviderID: fmt.Sprintf("gce://%s/%s/%s", w.compute.Project(), i.Zone, i.Name),
			Taints:     []corev1.Taint{{Key: spotv1alpha1.TaintUnverified, Effect: corev1.TaintEffectNoSchedule}},
		},
	}
	err := w.nodes.join(context.Background(), node)
	if _, lives := w.compute.Instance(i.Name); !lives { // the manager deletes no node that comes after the end of its instance
		w.nodes.leave(i.Name)
		err = client.IgnoreNotFound(w.Delete(context.Background(), node))
	}
	if err != nil {
		w.note("join %s: %v", i.Name, err)
	}
}

// instanceNoticed marks the node as the agent on it does, to which the metadata server reports a preemption.
func (w *world) instanceNoticed(i fakegce.Instance) {
	w.nodes.isNoticed(i.Name)
	notice := nodenotice.Notice{Node: i.Name, Source: nodenotice.MetadataServer, Time: time.Now()}
	switch err := nodenotice.Mark(context.Background(), w.Client, i.Name, notice); {
	case err == nil:
		w.faults.add(nodeNoticed)
	case !apierrors.IsNotFound(err):
		w.note("%v", err)
	}
}

func (w *world) instanceGone(i fakegce.Instance) { w.nodes.leave(i.Name) }

// await waits until nothing is said to be missing, and returns what still is when patience ends.
func (w *world) await(missing func(context.Context) (string, error)) string {
	return w.awaitWithin(patience, missing)
}

// awaitWithin is await with another limit. Each leaves the time to say what is missing before go test ends all.
func (w *world) awaitWithin(limit time.Duration, missing func(context.Context) (string, error)) string {
	if deadline, ok := w.t.Deadline(); ok {
		limit = max(min(limit, time.Until(deadline)-report), time.Millisecond)
	}
	last := "what was not looked at"
	_ = wait.PollUntilContextTimeout(w.t.Context(), time.Second, limit, true, func(ctx context.Context) (bool, error) {
		text, err := missing(ctx)
		switch {
		case ctx.Err() != nil: // what was missing before tells more
			return false, nil
		case err != nil:
			text = err.Error()
		}
		last = text
		return text == "", nil
	})
	return last
}
