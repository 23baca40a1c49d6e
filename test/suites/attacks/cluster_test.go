package attacks_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/operator-framework/api/crds"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/test/fakes/fakegce"
	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
	"github.com/dcnlab/spot-training-operator/test/harness/installations"
	"github.com/dcnlab/spot-training-operator/test/harness/jobservice"
	"github.com/dcnlab/spot-training-operator/test/harness/operator"
	"github.com/dcnlab/spot-training-operator/test/harness/process"
)

// patience bounds every wait.
const patience = 2 * time.Minute

var scheme = apiserver.Scheme(mlv1.AddToScheme, spotv1alpha1.AddToScheme, aiplatformv1alpha1.AddToScheme)

// cluster is a real API server without nodes, in which the operator is installed. The client is its administrator's.
type cluster struct {
	client.Client

	t        *testing.T
	form     form
	folder   string
	config   *rest.Config
	webhooks *installations.Webhooks
	compute  *projects
	// deputy is the project whose credentials are the operator's own identity.
	deputy *fakegce.Server

	manager *process.Server
	jobs    *jobservice.Service
	issuer  *issuer
	// certificate is the folder of what the kubelet mounts for the job service.
	certificate string

	checkpointAgent []*unstructured.Unstructured
	waiting         hidden
}

// start starts an API server and installs the operator into it, except for its pods.
func start(t *testing.T, f form) *cluster {
	t.Helper()
	c := &cluster{t: t, form: f, folder: t.TempDir(), compute: newProjects(t)}
	c.deputy = c.compute.add(t, "deputy")
	c.webhooks = installations.NewWebhooks(t, c.folder)
	server := apiserver.Start(t, apiserver.OwnCRDs, func(env *envtest.Environment) { env.CRDs = append(env.CRDs, crds.OperatorCondition()) },
		apiserver.Flag("disable-admission-plugins", "ServiceAccount,TaintNodesByCondition"), apiserver.Flag("endpoint-reconciler-type", "none"),
		apiserver.Flag("enable-bootstrap-token-auth", "true"))
	c.config = server.Config(t)
	var err error
	c.Client, err = client.New(c.config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	c.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: f.Namespace}})
	for _, object := range slices.Concat(f.Objects, f.ByOLM) {
		switch object.GetObjectKind().GroupVersionKind().Kind {
		case "Namespace", "CustomResourceDefinition": // which are there
			continue
		}
		object = object.DeepCopyObject().(client.Object)
		c.webhooks.Redirect(t, object)
		c.create(object)
	}
	c.clusterInfo()
	c.startAggregation(server.KubeconfigOf(t, "system:kube-controller-manager", "system:masters"))
	return c
}

// in is the cluster for a part of the test.
func (c *cluster) in(t *testing.T) *cluster {
	next := *c
	next.t = t
	return &next
}

func (c *cluster) create(object client.Object) {
	c.t.Helper()
	require.NoError(c.t, c.Create(c.t.Context(), object), "%T %s", object, object.GetName())
}

// clusterInfo creates the ConfigMap that kubeadm leaves behind.
func (c *cluster) clusterInfo() {
	c.t.Helper()
	info := clientcmdapi.NewConfig()
	info.Clusters[""] = &clientcmdapi.Cluster{Server: "https://10.0.0.1:6443", CertificateAuthorityData: c.config.CAData}
	text, err := clientcmd.Write(*info)
	require.NoError(c.t, err)
	public := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespacePublic}}
	require.NoError(c.t, client.IgnoreAlreadyExists(c.Create(c.t.Context(), public)))
	c.create(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "cluster-info", Namespace: metav1.NamespacePublic}, Data: map[string]string{"kubeconfig": string(text)},
	})
}

// startAggregation starts the controller of Kubernetes' own that adds roles to admin, edit and view.
func (c *cluster) startAggregation(kubeconfig []byte) {
	c.t.Helper()
	path := filepath.Join(c.folder, "controllers.kubeconfig")
	require.NoError(c.t, os.WriteFile(path, kubeconfig, 0o600))
	c.run("kube-controller-manager", func() error { return nil }, func() *exec.Cmd {
		return exec.Command(filepath.Join(apiserver.Binaries(), "kube-controller-manager"), "--controllers=clusterrole-aggregation-controller",
			"--kubeconfig="+path, "--authentication-kubeconfig="+path, "--authorization-kubeconfig="+path, "--leader-elect=false", "--secure-port=0")
	})
}

func (c *cluster) run(name string, ready func() error, command func() *exec.Cmd) *process.Server {
	c.t.Helper()
	return process.New(c.t, process.Options{
		Name: name, Log: filepath.Join(c.folder, name+".log"), Stop: syscall.SIGTERM, Ready: ready, Command: command,
	})
}

// startManager starts the manager with the arguments and the environment of its Deployment. It has an identity at the provider, as a pod
// of a cluster there has.
func (c *cluster) startManager() {
	c.t.Helper()
	identity := filepath.Join(c.folder, "identity.json")
	require.NoError(c.t, os.WriteFile(identity, c.deputy.CredentialsJSON(), 0o600))
	probes := process.FreePort(c.t, process.AnyPort)
	installed := installations.Arguments(&c.form.Manager)
	// Of two settings of a flag the last counts. The namespace is what a pod reads from its own file system.
	arguments := slices.Concat(installed, c.webhooks.Arguments(installed), []string{
		"--metrics-bind-address=0", "--health-probe-bind-address=" + probes, "--leader-election-namespace=" + c.form.Namespace,
		"--gcp-endpoint=" + c.compute.url, "--cloud-list-interval=1s",
	})
	environment := slices.Concat(os.Environ(), c.form.Variables(&c.form.Manager), c.form.Environment, []string{
		"KUBECONFIG=" + apiserver.AccountKubeconfig(c.t, c.Client, c.config, c.folder, c.form.Namespace, c.form.Account()),
		"GOOGLE_APPLICATION_CREDENTIALS=" + identity,
	})
	ready := func() error {
		answer, err := http.Get("http://" + probes + "/readyz")
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("status %d", answer.StatusCode)
		}
		return nil
	}
	c.manager = c.run("manager", ready, func() *exec.Cmd {
		command := exec.Command(operator.Program(c.t), arguments...)
		command.Env = environment
		return command
	})
}

func (c *cluster) await(what string, met func(context.Context) (bool, error)) {
	c.t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(c.t.Context(), 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		ok, err := met(ctx)
		last = err
		return ok && err == nil, nil
	})
	require.NoError(c.t, err, "waited too long for %s: %v", what, last)
}

// namespace makes one with labels.
func (c *cluster) namespace(labels map[string]string) string {
	c.t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "team-", Labels: labels}}
	c.create(namespace)
	return namespace.Name
}

// bind gives a user a ClusterRole in a namespace.
func (c *cluster) bind(namespace, role, user string) {
	c.t.Helper()
	c.create(&rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "user-"}, RoleRef: clusterRole(role),
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})
}

func clusterRole(name string) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
}

// role is the name of the ClusterRole of the installation that ends so.
func (c *cluster) role(end string) string {
	c.t.Helper()
	var roles rbacv1.ClusterRoleList
	require.NoError(c.t, c.List(c.t.Context(), &roles))
	for i := range roles.Items {
		if strings.HasSuffix(roles.Items[i].Name, end) {
			return roles.Items[i].Name
		}
	}
	require.Fail(c.t, "no role ends in "+end)
	return ""
}

// as is the API server as a user sees it.
func (c *cluster) as(user string) client.Client {
	c.t.Helper()
	config := rest.CopyConfig(c.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	return c.by(config)
}

// asAccount is the API server as a pod on a node sees it.
func (c *cluster) asAccount(namespace, account, node string) client.Client {
	c.t.Helper()
	return c.by(apiserver.PodConfig(c.t, c.config, namespace, account, node))
}

func (c *cluster) by(config *rest.Config) client.Client {
	c.t.Helper()
	of, err := client.New(config, client.Options{Scheme: scheme, Mapper: c.RESTMapper()})
	require.NoError(c.t, err)
	return of
}

// may asks the API server whether a user may do something.
func (c *cluster) may(user string, what authorizationv1.ResourceAttributes) bool {
	c.t.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user, Groups: []string{"system:authenticated"}, ResourceAttributes: &what,
	}}
	c.create(review)
	return review.Status.Allowed
}

// awaitRight waits for a right that roles are aggregated to.
func (c *cluster) awaitRight(user, verb, group, resource, namespace string) {
	c.t.Helper()
	c.await(user+" being allowed to "+verb+" "+resource, func(context.Context) (bool, error) {
		return c.may(user, authorizationv1.ResourceAttributes{Verb: verb, Group: group, Resource: resource, Namespace: namespace}), nil
	})
}

// node makes the Node of a machine that is ready and has two GPUs.
func (c *cluster) node(name string, labels map[string]string) *corev1.Node {
	c.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	if name == "" {
		node.GenerateName = "node-"
	}
	c.create(node)
	before := node.DeepCopy()
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
	node.Status.Allocatable = quantities("cpu", "8", "memory", "32Gi", "pods", "20", "nvidia.com/gpu", "2")
	node.Status.Capacity = node.Status.Allocatable
	require.NoError(c.t, c.Status().Patch(c.t.Context(), node, client.MergeFrom(before)))
	return node
}

func mergePatch(text string) client.Patch {
	return client.RawPatch(types.MergePatchType, []byte(text))
}
