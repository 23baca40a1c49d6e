package performance

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
	"github.com/dcnlab/spot-training-operator/test/harness/installations"
	"github.com/dcnlab/spot-training-operator/test/harness/process"
)

var (
	//go:embed audit-policy.yaml
	auditPolicy []byte
	//go:embed kwok.yaml
	kwokConfiguration string
)

const (
	// namespace holds the jobs that are measured, warmUp those before them.
	namespace = "bench"
	warmUp    = "warm-up"

	// managerUser is who the manager is to the API server: the user of its ServiceAccount when it is installed.
	managerUser = "system:serviceaccount:" + managerNamespace + ":spot-training-operator-controller-manager"

	managerNamespace = "spot-training-operator-system"

	// kwok simulates nodes; it is its own user of the API server.
	kwok = "kwok"

	// loadUser plays users, scheduler and kubelets in a bare cluster. It may do everything, and its requests are not limited.
	loadUser = "load"
)

// clusterOptions say what a simulated cluster is like.
type clusterOptions struct {
	// policy installs the admission policy of config/admission, as the default installation does.
	policy bool
	// audit keeps the audit log.
	audit bool
	pods  podLife
	// bare starts neither controllers nor a scheduler nor the simulation of nodes: what is measured plays their part.
	bare bool
}

// podLife says how simulated pods live.
type podLife struct {
	// running is the time until they run, ending the time from then to their end: at least the first, at most the second.
	running, ending [2]time.Duration
	// lasting pods do not end.
	lasting bool
	// loopback gives them all the address 127.0.0.1, where the metrics server of this program answers for them.
	loopback bool
}

// cluster is a control plane with simulated nodes.
type cluster struct {
	*bench

	options clusterOptions
	folder  string
	server  *apiserver.Server
	config  *rest.Config
	client  client.Client
	// running are the programs beside the API server, by name.
	running map[string]*process.Server
	// metrics is the URL of the manager's.
	metrics string
}

// startCluster starts a cluster, which ends with its part of the measurement.
func (b *bench) startCluster(options clusterOptions) *cluster {
	c := &cluster{bench: b, options: options, folder: b.TempDir(), running: map[string]*process.Server{}}
	c.startAPIServer()
	if !options.bare {
		c.startControllers()
	}
	c.makeNodes()
	c.install()
	if !options.bare {
		c.startNodes()
	}
	return c
}

func (c *cluster) startAPIServer() {
	// A pod needs its ServiceAccount to exist, as in any cluster. Nodes are ready when they are made. What is measured is
	// the work, not how it is held back.
	options := []apiserver.Option{
		apiserver.OwnCRDs,
		apiserver.Flag("max-requests-inflight", "2000"),
		apiserver.Flag("max-mutating-requests-inflight", "1000"),
		apiserver.Flag("disable-admission-plugins", "TaintNodesByCondition"),
		apiserver.Flag("endpoint-reconciler-type", "none"),
	}
	if c.options.audit {
		policy := filepath.Join(c.folder, "audit-policy.yaml")
		require.NoError(c, os.WriteFile(policy, auditPolicy, 0o644))
		options = append(options, apiserver.Flag("audit-policy-file", policy), apiserver.Flag("audit-log-path", c.auditLog()))
	}
	if c.options.bare {
		options = append(options, apiserver.Flag("token-auth-file", c.writeTokens()))
	}
	c.server = apiserver.Start(c.B, options...)
	c.config = c.server.Config(c)
	if c.options.bare {
		c.config = rest.AnonymousClientConfig(c.config)
		c.config.BearerToken = tokenOf(loadUser)
	}
	var err error
	c.client, err = client.New(c.config, client.Options{Scheme: apiserver.Scheme(mlv1.AddToScheme, aiplatformv1alpha1.AddToScheme)})
	require.NoError(c, err)
}

// typed is a client of Kubernetes' own kinds.
func (c *cluster) typed() *kubernetes.Clientset {
	config := rest.CopyConfig(c.config)
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	typed, err := kubernetes.NewForConfig(config)
	require.NoError(c, err)
	return typed
}

// auditLog is the path of the audit log.
func (c *cluster) auditLog() string { return filepath.Join(c.folder, "audit.log") }

func tokenOf(name string) string { return "token-of-" + name }

// writeTokens writes the file of the users that a bare cluster knows, who have tokens. The manager has one when it is installed, too:
// certificates, which the users of other clusters here have, cost the API server a signature with every request.
func (c *cluster) writeTokens() string {
	path := filepath.Join(c.folder, "tokens.csv")
	text := fmt.Sprintf("%s,%s,1,\"system:masters\"\n%s,%s,2,\"system:serviceaccounts,system:serviceaccounts:%s\"\n",
		tokenOf(loadUser), loadUser, tokenOf(managerUser), managerUser, managerNamespace)
	require.NoError(c, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// kubeconfig writes a kubeconfig for a user of its own and returns its path.
func (c *cluster) kubeconfig(name string, groups ...string) string {
	path := filepath.Join(c.folder, strings.ReplaceAll(name, ":", "-")+".kubeconfig") // KUBECONFIG separates paths by colons
	if !c.options.bare {
		require.NoError(c, os.WriteFile(path, c.server.KubeconfigOf(c, name, groups...), 0o600))
		return path
	}
	config := api.NewConfig()
	config.Clusters["bare"] = &api.Cluster{Server: c.config.Host, CertificateAuthorityData: c.config.CAData}
	config.AuthInfos[name] = &api.AuthInfo{Token: tokenOf(name)}
	config.Contexts["bare"] = &api.Context{Cluster: "bare", AuthInfo: name}
	config.CurrentContext = "bare"
	require.NoError(c, clientcmd.WriteToFile(*config, path))
	return path
}

// start starts a program.
func (c *cluster) start(name, program string, env []string, arguments ...string) {
	c.running[name] = process.New(c.B, process.Options{
		Name: name, Log: filepath.Join(c.folder, name+".log"), Stop: syscall.SIGTERM,
		Command: func() *exec.Cmd {
			command := exec.Command(program, arguments...)
			command.Env, command.Dir = append(os.Environ(), env...), c.folder
			return command
		},
		Ready: func() error { return nil },
	})
}

// stop stops a program that start has started.
func (c *cluster) stop(name string) {
	c.running[name].Stop()
	delete(c.running, name)
}

func (c *cluster) startControllers() {
	for program, arguments := range map[string][]string{
		"kube-controller-manager": {
			// Nodes send no heartbeats, which must have no effect.
			"--controllers=*,-node-lifecycle-controller,-node-ipam-controller,-device-taint-eviction-controller",
			"--concurrent-job-syncs=20", "--use-service-account-credentials=true",
		},
		"kube-scheduler": nil,
	} {
		kubeconfig := c.kubeconfig("system:" + program)
		c.start(program, filepath.Join(apiserver.Binaries(), program), nil, append(arguments,
			"--kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig,
			"--leader-elect=false", "--secure-port=0", "--kube-api-qps=1000", "--kube-api-burst=1000")...)
	}
}

// startNodes starts the simulation of nodes and pods.
func (c *cluster) startNodes() {
	life := c.options.pods
	fixedIP, endsIn := `""`, "Running"
	if life.loopback {
		fixedIP = `"127.0.0.1"`
	}
	if life.lasting {
		endsIn = "Never"
	}
	milliseconds := func(d time.Duration) string { return fmt.Sprint(d.Milliseconds()) }
	text := strings.NewReplacer(
		"RUN_DELAY", milliseconds(life.running[0]), "RUN_LATEST", milliseconds(life.running[1]),
		"END_DELAY", milliseconds(life.ending[0]), "END_LATEST", milliseconds(life.ending[1]),
		"FIXED_IP", fixedIP, "ENDS_IN_PHASE", endsIn,
	).Replace(kwokConfiguration)
	path := filepath.Join(c.folder, "kwok.yaml")
	require.NoError(c, os.WriteFile(path, []byte(text), 0o644))
	c.start(kwok, filepath.Join(apiserver.Binaries(), kwok), nil,
		"--kubeconfig="+c.kubeconfig(kwok, "system:masters"), "--config="+path, "--manage-all-nodes=true")
}

// change lets the pods live otherwise from now on.
func (c *cluster) change(pods podLife) {
	c.stop(kwok)
	c.options.pods = pods
	c.startNodes()
}

// makeNodes creates the nodes, and the namespaces with their ServiceAccounts.
func (c *cluster) makeNodes() {
	ctx := c.Context()
	for i := range c.nodes {
		name := fmt.Sprintf("node-%d", i)
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
		require.NoError(c, c.client.Create(ctx, node))
		capacity := corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("1000"), corev1.ResourceMemory: resource.MustParse("1Ti"),
			corev1.ResourcePods: resource.MustParse("10000"),
		}
		node.Status = corev1.NodeStatus{Capacity: capacity, Allocatable: capacity}
		if c.options.bare { // nothing else says so
			node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Simulated"}}
		}
		require.NoError(c, c.client.Status().Update(ctx, node))
	}
	for _, name := range []string{warmUp, namespace} {
		require.NoError(c, c.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "default"}}
		if c.options.bare {
			require.NoError(c, c.client.Create(ctx, account))
			continue
		}
		c.await("namespaces have a ServiceAccount", time.Minute, func() (bool, error) {
			err := c.client.Get(ctx, client.ObjectKeyFromObject(account), account)
			return err == nil, err
		})
	}
}

// install installs what the manager needs: its role and, as an option, the admission policy.
func (c *cluster) install() {
	rights, err := installations.ManagerRights(rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: managerUser})
	require.NoError(c, err)
	for _, object := range rights {
		require.NoError(c, c.client.Create(c.Context(), object))
	}
	if !c.options.policy {
		return
	}
	c.create("config", "admission", "replica_id_policy.yaml")
	c.await("the admission policy acts", time.Minute, func() (bool, error) {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "probe", Namespace: warmUp, Labels: map[string]string{
				mlv1.LabelTrainingJob: "probe", "batch.kubernetes.io/job-completion-index": "0",
			}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "probe", Image: "probe"}}},
		}
		err := c.client.Create(c.Context(), pod, client.DryRunAll)
		return err == nil && pod.Labels[mlv1.LabelReplicaID] == "0", err
	})
}

// create creates the objects in a YAML file of the repository.
func (c *cluster) create(path ...string) {
	text, err := os.ReadFile(filepath.Join(append([]string{apiserver.Root()}, path...)...))
	require.NoError(c, err)
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		object := &unstructured.Unstructured{}
		require.NoError(c, yaml.Unmarshal([]byte(document), &object.Object))
		if len(object.Object) > 0 {
			require.NoError(c, client.IgnoreAlreadyExists(c.client.Create(c.Context(), object)), "create what is in %s", path)
		}
	}
}

// await asks several times a second until the answer is yes, the time is over, or one of the programs has ended.
func (c *cluster) await(what string, limit time.Duration, met func() (bool, error)) {
	c.Helper()
	for deadline := time.Now().Add(limit); ; c.pause(200 * time.Millisecond) {
		ok, err := met()
		if ok {
			return
		}
		for name, program := range c.running {
			require.False(c, program.Ended(), "wait until %s: %s ended", what, name)
		}
		require.True(c, time.Now().Before(deadline), "waited %s without success until %s: %v", limit, what, err)
	}
}
