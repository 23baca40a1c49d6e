package rbac_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/operator-framework/api/crds"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/test/fakes/checkpointbackup"
	"github.com/dcnlab/spot-training-operator/test/fakes/fakegce"
	"github.com/dcnlab/spot-training-operator/test/fakes/gangs"
	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
	"github.com/dcnlab/spot-training-operator/test/harness/installations"
)

// patience bounds every wait.
const patience = 3 * time.Minute

// cluster is a real control plane, of API server and controllers, without nodes. The client is its administrator's.
type cluster struct {
	client.Client

	t            *testing.T
	folder       string
	config       *rest.Config
	installation *installations.Installation
	webhooks     *installations.Webhooks
	compute      *fakegce.Server
}

// startCluster starts a control plane and installs the operator into it, except for its pod. The cluster is that of the first installation;
// there may be others beside it.
func startCluster(t *testing.T, all ...*installations.Installation) *cluster {
	t.Helper()
	c := &cluster{t: t, folder: t.TempDir(), installation: all[0], compute: fakegce.Start(t, fakegce.Options{})}
	var users []string
	for _, i := range all {
		users = append(users, i.User())
	}
	c.webhooks = installations.NewWebhooks(t, c.folder)
	policy := filepath.Join(c.folder, "audit-policy.yaml")
	require.NoError(t, os.WriteFile(policy, auditPolicy(users), 0o644))

	var env *envtest.Environment
	server := apiserver.Start(t, func(e *envtest.Environment) { env = e },
		apiserver.Flag("audit-policy-file", policy), apiserver.Flag("audit-log-path", c.auditLog()),
		// OpenShift has this plugin: it asks for more than the verbs of a request where owner references are set.
		apiserver.Flag("enable-admission-plugins", "OwnerReferencesPermissionEnforcement"),
		// Not the ServiceAccount plugin, which envtest turns off: a pod needs its ServiceAccount here as anywhere.
		apiserver.Flag("disable-admission-plugins", "TaintNodesByCondition"),
		apiserver.Flag("endpoint-reconciler-type", "none"),
		apiserver.Flag("admission-control-config-file", c.webhooks.ShowCertificate(t, c.folder)),
		// Kubernetes' own gangs, which no cluster serves by default.
		apiserver.Flag("feature-gates", "GenericWorkload=true"), apiserver.Flag("runtime-config", "scheduling.k8s.io/v1alpha2=true"))
	c.config = server.Config(t)
	scheme := apiserver.Scheme(apiextensionsv1.AddToScheme, mlv1.AddToScheme, spotv1alpha1.AddToScheme, aiplatformv1alpha1.AddToScheme)
	var err error
	c.Client, err = client.New(c.config, client.Options{Scheme: scheme})
	require.NoError(t, err)

	// The garbage collector looks for new kinds only every 30 seconds, so they are there before it.
	c.installKinds()
	for _, i := range all {
		c.install(i)
	}
	c.startControllers(env)
	return c
}

// of is the cluster as another installation in it sees it.
func (c *cluster) of(i *installations.Installation) *cluster {
	next := *c
	next.installation = i
	return &next
}

// in is the cluster for a part of the test.
func (c *cluster) in(t *testing.T) *cluster {
	next := *c
	next.t = t
	return &next
}

func (c *cluster) auditLog() string { return filepath.Join(c.folder, "audit.log") }

// startControllers starts Kubernetes' own controllers: those of Jobs, of garbage, of namespaces and all others that need
// no nodes.
func (c *cluster) startControllers(env *envtest.Environment) {
	c.t.Helper()
	user, err := env.AddUser(envtest.User{Name: "system:kube-controller-manager", Groups: []string{"system:masters"}}, nil)
	require.NoError(c.t, err)
	text, err := user.KubeConfig()
	require.NoError(c.t, err)
	kubeconfig := filepath.Join(c.folder, "controllers.kubeconfig")
	require.NoError(c.t, os.WriteFile(kubeconfig, text, 0o600))
	startProcess(c.t, c.folder, "kube-controller-manager", filepath.Join(assets, "kube-controller-manager"), nil,
		"--controllers=*,-node-lifecycle-controller,-node-ipam-controller,-device-taint-eviction-controller,"+
			"-endpoints-controller,-endpointslice-controller,-endpointslice-mirroring-controller",
		"--kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig,
		"--feature-gates=GenericWorkload=true", "--leader-elect=false", "--secure-port=0", "--kube-api-qps=500", "--kube-api-burst=500")
}

func (c *cluster) installKinds() {
	c.t.Helper()
	backups, err := checkpointbackup.CRD()
	require.NoError(c.t, err)
	_, err = envtest.InstallCRDs(c.config, envtest.CRDInstallOptions{
		Paths: append(gangKinds(c.t), root+"/config/crd/bases"), MaxTime: patience,
		CRDs: []*apiextensionsv1.CustomResourceDefinition{crds.OperatorCondition(), backups},
	})
	require.NoError(c.t, err)
}

func (c *cluster) install(i *installations.Installation) {
	c.t.Helper()
	for _, name := range append([]string{i.Namespace}, i.Served...) {
		require.NoError(c.t, c.Create(c.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	for _, object := range slices.Concat(i.Objects, i.ByOLM) {
		switch object.GetObjectKind().GroupVersionKind().Kind {
		case "Namespace", "CustomResourceDefinition": // which are there
			continue
		}
		object := object.DeepCopyObject().(client.Object)
		c.webhooks.Redirect(c.t, object)
		require.NoError(c.t, c.Create(c.t.Context(), object), "%s %s", object.GetObjectKind().GroupVersionKind().Kind, object.GetName())
	}
}

// gangKinds are the files of the kinds of gang schedulers and of Kueue.
func gangKinds(t *testing.T) []string {
	t.Helper()
	volcano, err := gangs.Volcano()
	require.NoError(t, err)
	coscheduling, err := gangs.Coscheduling()
	require.NoError(t, err)
	kueue, err := gangs.Kueue(root)
	require.NoError(t, err)
	return []string{volcano, coscheduling, kueue}
}

// await waits until something is so.
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

// kubeconfig writes one for a ServiceAccount, with a token as its pod has it.
func (c *cluster) kubeconfig(namespace, account string) string {
	c.t.Helper()
	return apiserver.AccountKubeconfig(c.t, c.Client, c.config, c.folder, namespace, account)
}

// grants are all that the roles give to the manager's ServiceAccount.
func (c *cluster) grants() []grant {
	c.t.Helper()
	var all []grant
	var everywhere rbacv1.ClusterRoleBindingList
	require.NoError(c.t, c.List(c.t.Context(), &everywhere))
	for _, binding := range everywhere.Items {
		if c.bindsManager(binding.Subjects) {
			for _, g := range grantsOf(c.rules(binding.RoleRef, ""), binding.Name, "") {
				g.lifted = c.installation.Lifted[binding.Name]
				all = append(all, g)
			}
		}
	}
	var local rbacv1.RoleBindingList
	require.NoError(c.t, c.List(c.t.Context(), &local))
	for _, binding := range local.Items {
		if c.bindsManager(binding.Subjects) && !c.installation.IsByOLM(&binding) {
			rules := c.rules(binding.RoleRef, binding.Namespace)
			all = append(all, grantsOf(rules, binding.Name+"/"+binding.Namespace, binding.Namespace)...)
		}
	}
	require.NotEmpty(c.t, all, "no role is bound to %s", c.installation.User())
	return all
}

func (c *cluster) bindsManager(subjects []rbacv1.Subject) bool {
	for _, s := range subjects {
		if s.Kind == rbacv1.ServiceAccountKind && s.Name == c.installation.Account() && s.Namespace == c.installation.Namespace {
			return true
		}
	}
	return false
}

func (c *cluster) rules(ref rbacv1.RoleRef, namespace string) []rbacv1.PolicyRule {
	c.t.Helper()
	if ref.Kind == "Role" {
		var role rbacv1.Role
		require.NoError(c.t, c.Get(c.t.Context(), client.ObjectKey{Namespace: namespace, Name: ref.Name}, &role))
		return role.Rules
	}
	var role rbacv1.ClusterRole
	require.NoError(c.t, c.Get(c.t.Context(), client.ObjectKey{Name: ref.Name}, &role))
	return role.Rules
}
