package upgrade

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/operator-framework/api/crds"
	operatorsv2 "github.com/operator-framework/api/pkg/operators/v2"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
	"github.com/dcnlab/spot-training-operator/test/harness/etcd"
	"github.com/dcnlab/spot-training-operator/test/harness/installations"
	"github.com/dcnlab/spot-training-operator/test/harness/operator"
)

const (
	root      = "../../.."
	namespace = "operators"
	// serviceAccount is who the manager is to the API server.
	serviceAccount = "controller-manager"
	// jobsCRD is the CRD whose storage version changes.
	jobsCRD = "trainingjobs.ml.example.com"

	patience = 2 * time.Minute
)

// cluster is an API server with the operator's CRDs and permissions.
type cluster struct {
	client.Client
	t          *testing.T
	server     *apiserver.Server
	kubeconfig string
	program    string
}

// newCluster starts the API server; TrainingJobs are stored as v1beta1.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, program: operator.Program(t)}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, operatorsv2.AddToScheme, mlv1.AddToScheme,
		aiplatformv1alpha1.AddToScheme,
	} {
		require.NoError(t, add(scheme))
	}
	c.server = apiserver.Start(t, func(env *envtest.Environment) {
		env.Scheme, env.CRDs = scheme, append(definitions(t), crds.OperatorCondition())
	})
	var err error
	c.Client, err = client.New(c.server.Config(t), client.Options{Scheme: scheme})
	require.NoError(t, err)
	c.grant()
	return c
}

// definitions are the operator's CRDs, the one of TrainingJobs in its oldest form.
func definitions(t *testing.T) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "config", "crd", "bases", "*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var all []*apiextensionsv1.CustomResourceDefinition
	for _, file := range files {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		read(t, file, crd)
		if crd.Name == jobsCRD {
			crd.Spec.Versions = slices.DeleteFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
				return v.Name != "v1"
			})
			older := *crd.Spec.Versions[0].DeepCopy()
			older.Name = "v1beta1"
			crd.Spec.Versions = append(crd.Spec.Versions, older)
			storeAs(crd, "v1beta1")
		}
		all = append(all, crd)
	}
	return all
}

func storeAs(crd *apiextensionsv1.CustomResourceDefinition, version string) {
	for i := range crd.Spec.Versions {
		crd.Spec.Versions[i].Storage = crd.Spec.Versions[i].Name == version
	}
}

func read(t *testing.T, file string, object any) {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, yaml.UnmarshalStrict(data, object), file)
}

// grant gives the manager's user the role that is installed with it.
func (c *cluster) grant() {
	c.t.Helper()
	name := "system:serviceaccount:" + namespace + ":" + serviceAccount
	c.kubeconfig = filepath.Join(c.t.TempDir(), "kubeconfig")
	require.NoError(c.t, os.WriteFile(c.kubeconfig, c.server.KubeconfigOf(c.t, name, "system:authenticated"), 0o600))

	rights, err := installations.ManagerRights(rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: serviceAccount})
	require.NoError(c.t, err)
	for _, object := range append(rights, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}) {
		require.NoError(c.t, c.Create(c.t.Context(), object))
	}
}

// installOperatorCondition does what OLM does for a ClusterServiceVersion.
func (c *cluster) installOperatorCondition(name string) {
	c.t.Helper()
	about := metav1.ObjectMeta{Namespace: namespace, Name: name}
	for _, object := range []client.Object{
		&operatorsv2.OperatorCondition{ObjectMeta: about},
		&rbacv1.Role{ObjectMeta: about, Rules: []rbacv1.PolicyRule{{
			Verbs: []string{"get", "update", "patch"}, APIGroups: []string{"operators.coreos.com"},
			Resources: []string{"operatorconditions"}, ResourceNames: []string{name},
		}}},
		&rbacv1.RoleBinding{
			ObjectMeta: about,
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: serviceAccount}},
		},
	} {
		require.NoError(c.t, c.Create(c.t.Context(), object))
	}
}

// stored reads from etcd how TrainingJobs are stored.
func (c *cluster) stored() map[string]etcd.Object {
	c.t.Helper()
	server := etcd.Server{URL: c.server.Etcd()}
	objects, err := server.Objects(c.t.Context(), mlv1.GroupName, "trainingjobs")
	require.NoError(c.t, err)
	return objects
}

func (c *cluster) storedVersions() []string {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := c.Get(c.t.Context(), client.ObjectKey{Name: jobsCRD}, crd); err != nil {
		return nil
	}
	return crd.Status.StoredVersions
}

// eventually waits for something to happen.
func (c *cluster) eventually(what string, happened func() bool) {
	c.t.Helper()
	require.Eventually(c.t, happened, patience, 50*time.Millisecond, what)
}

// manager is the operator's program as a child process.
type manager struct {
	c       *cluster
	command *exec.Cmd
	ended   chan struct{}
	probes  string
	log     string
}

// start runs the manager until the test ends.
func (c *cluster) start(environment []string, arguments ...string) *manager {
	c.t.Helper()
	m := &manager{c: c, ended: make(chan struct{}), probes: freeAddress(c.t)}
	arguments = append([]string{
		"manager", "--leader-elect=false", "--metrics-bind-address=0", "--health-probe-bind-address=" + m.probes,
	}, arguments...)
	m.command = exec.Command(c.program, arguments...)
	m.command.Env = append(append(os.Environ(), "KUBECONFIG="+c.kubeconfig), environment...)
	log, err := os.CreateTemp(c.t.TempDir(), "manager-*.log")
	require.NoError(c.t, err)
	m.log = log.Name()
	m.command.Stdout, m.command.Stderr = log, log
	require.NoError(c.t, m.command.Start())
	go func() {
		_ = m.command.Wait()
		_ = log.Close()
		close(m.ended)
	}()
	c.t.Cleanup(m.stop)
	return m
}

// stop ends the manager; in a test that has failed it shows the log.
func (m *manager) stop() {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		_ = m.command.Process.Signal(signal)
		select {
		case <-m.ended:
			if m.c.t.Failed() {
				text, _ := os.ReadFile(m.log)
				m.c.t.Logf("the manager's log:\n%s", text)
			}
			return
		case <-time.After(30 * time.Second):
		}
	}
}

// ready asks the readiness probe.
func (m *manager) ready() bool {
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://"+m.probes+"/readyz", nil)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// logs says whether the manager has logged a message.
func (m *manager) logs(message string) bool {
	text, err := os.ReadFile(m.log)
	return err == nil && bytes.Contains(text, []byte(message))
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}
