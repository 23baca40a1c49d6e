package chart_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/internal/nodenotice"
	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

const (
	trainingJobs = "trainingjobs.ml.example.com"
	// secretLimit is how many bytes a Secret may hold, in which Helm keeps a release (Kubernetes' MaxSecretSize).
	secretLimit = 1 << 20
)

// cluster is a real API server without nodes: a release can be installed, but its pods do not run.
type cluster struct {
	client.Client

	t          *testing.T
	config     *rest.Config
	kubeconfig string
}

// in is the cluster for a part of a test.
func (c *cluster) in(t *testing.T) *cluster {
	return &cluster{Client: c.Client, t: t, config: c.config, kubeconfig: c.kubeconfig}
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	server := apiserver.Start(t)
	c, err := client.New(server.Config(t), client.Options{Scheme: apiserver.Scheme(apiextensionsv1.AddToScheme, mlv1.AddToScheme)})
	require.NoError(t, err)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, server.Kubeconfig(), 0o600))
	return &cluster{Client: c, t: t, config: server.Config(t), kubeconfig: kubeconfig}
}

// helm runs helm against the cluster.
func (c *cluster) helm(args ...string) (string, error) {
	c.t.Helper()
	return helm(c.t, append(args, "--kubeconfig", c.kubeconfig, "--namespace", releaseNamespace)...)
}

func (c *cluster) mustHelm(args ...string) string {
	c.t.Helper()
	text, err := c.helm(args...)
	require.NoError(c.t, err)
	return text
}

func (c *cluster) await(what string, met func(context.Context) (bool, error)) {
	c.t.Helper()
	// The API server may miss that a kind is to go, and looks at all of them again every five minutes.
	err := wait.PollUntilContextTimeout(c.t.Context(), 50*time.Millisecond, 6*time.Minute, true, met)
	require.NoError(c.t, err, "waited too long for %s", what)
}

// crd returns a kind once it is served.
func (c *cluster) crd(name string) *apiextensionsv1.CustomResourceDefinition {
	c.t.Helper()
	var crd apiextensionsv1.CustomResourceDefinition
	c.await(name+" being served", func(ctx context.Context) (bool, error) {
		if err := c.Get(ctx, client.ObjectKey{Name: name}, &crd); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		for _, condition := range crd.Status.Conditions {
			if condition.Type == apiextensionsv1.Established {
				return condition.Status == apiextensionsv1.ConditionTrue, nil
			}
		}
		return false, nil
	})
	return &crd
}

// ofRelease are the kinds and names of what belongs to the release, in the namespace and cluster-wide.
func (c *cluster) ofRelease() []string {
	c.t.Helper()
	var found []string
	for _, list := range []client.ObjectList{
		&appsv1.DeploymentList{}, &corev1.ServiceList{}, &corev1.ServiceAccountList{}, &rbacv1.RoleList{}, &rbacv1.RoleBindingList{},
		&rbacv1.ClusterRoleList{}, &rbacv1.ClusterRoleBindingList{}, &admissionregistrationv1.MutatingAdmissionPolicyList{},
		&admissionregistrationv1.MutatingAdmissionPolicyBindingList{}, &admissionregistrationv1.ValidatingWebhookConfigurationList{},
		&admissionregistrationv1.MutatingWebhookConfigurationList{}, &networkingv1.NetworkPolicyList{},
		&apiextensionsv1.CustomResourceDefinitionList{},
	} {
		require.NoError(c.t, c.List(c.t.Context(), list, client.MatchingLabels{"app.kubernetes.io/name": "spot-training-operator"}))
		text, err := runtime.DefaultUnstructuredConverter.ToUnstructured(list)
		require.NoError(c.t, err)
		items, _ := text["items"].([]any)
		for _, item := range items {
			metadata := item.(map[string]any)["metadata"].(map[string]any)
			found = append(found, metadata["name"].(string))
		}
	}
	return found
}

// nextVersion is a copy of the chart whose TrainingJob has a field more.
func nextVersion(t *testing.T) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "spot-training-operator")
	require.NoError(t, os.CopyFS(folder, os.DirFS(chart)))
	edit := func(name, old, replacement string) {
		path := filepath.Join(folder, name)
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Contains(t, string(text), old)
		require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(string(text), old, replacement)), 0o644))
	}
	edit("templates/crds/trainingjobs.yaml", "              dataset:\n",
		"              inTheNextVersion:\n                description: is new.\n                type: string\n              dataset:\n")
	edit("Chart.yaml", "\nversion: ", "\nversion: 9")
	return folder
}

func hasNewField(crd *apiextensionsv1.CustomResourceDefinition) bool {
	_, ok := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["inTheNextVersion"]
	return ok
}

func TestTheLifeOfARelease(t *testing.T) {
	c := startCluster(t)
	next := nextVersion(t)
	job := builders.TrainingJob("bert").Namespace("default").ToCreate()

	notes := c.mustHelm("install", release, chart, "--create-namespace")
	t.Run("it is installed", func(t *testing.T) {
		c := c.in(t)
		assert.Contains(t, notes, "kind: TrainingJob")
		assert.Contains(t, notes, "WARNING: image.repository is a placeholder")
		assert.False(t, hasNewField(c.crd(trainingJobs)))
		require.NoError(t, c.Create(t.Context(), job))
		var deployment appsv1.Deployment
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: releaseNamespace, Name: deploymentName}, &deployment))
		var releases corev1.SecretList
		require.NoError(t, c.List(t.Context(), &releases, client.InNamespace(releaseNamespace), client.MatchingLabels{"owner": "helm"}))
		require.Len(t, releases.Items, 1)
		size := len(releases.Items[0].Data["release"])
		t.Logf("the release takes %d of the %d bytes that a Secret may hold", size, secretLimit)
		assert.Less(t, size, secretLimit*3/4, "little is left for the kinds to grow: leave CRDs out of the chart")
	})
	t.Run("the token of a node agent is good for its own Node only", func(t *testing.T) {
		c := c.in(t)
		own, other := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "own"}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
		require.NoError(t, c.Create(t.Context(), own))
		require.NoError(t, c.Create(t.Context(), other))
		config := apiserver.PodConfig(t, c.config, releaseNamespace, "spot-training-operator-node-agent", own.Name)
		agent, err := client.New(config, client.Options{Mapper: c.RESTMapper()})
		require.NoError(t, err)
		notice := nodenotice.Notice{Source: nodenotice.MetadataServer, Time: time.Now()}
		c.await("the right to mark its Node", func(ctx context.Context) (bool, error) {
			return nodenotice.Mark(ctx, agent, own.Name, notice) == nil, nil
		})
		assert.ErrorContains(t, nodenotice.Mark(t.Context(), agent, other.Name, notice), "its token is for own, not for other")
	})
	t.Run("what the first TrainingJob of the notes says is accepted", func(t *testing.T) {
		c := c.in(t)
		_, manifest, _ := strings.Cut(notes, "<<EOF\n")
		manifest, _, found := strings.Cut(manifest, "\n  EOF")
		require.True(t, found)
		for id, object := range objects(t, manifest) {
			object.SetNamespace("default")
			require.NoError(t, c.Create(t.Context(), object, client.DryRunAll), id)
		}
	})
	t.Run("a second release is refused", func(t *testing.T) {
		c := c.in(t)
		_, err := helm(t, "install", "another", chart, "--kubeconfig", c.kubeconfig, "--namespace", "elsewhere", "--create-namespace")
		assert.ErrorContains(t, err, "invalid ownership metadata")
	})
	t.Run("an upgrade changes the kinds, and not what the manager wrote", func(t *testing.T) {
		c := c.in(t)
		authority, _, err := cert.GenerateSelfSignedCertKey("webhook", nil, nil)
		require.NoError(t, err)
		webhooks := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "spot-training-operator"}}
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(webhooks), webhooks))
		webhooks.Webhooks[0].ClientConfig.CABundle = authority
		require.NoError(t, c.Update(t.Context(), webhooks))
		c.mustHelm("upgrade", release, next, "--reset-then-reuse-values", "--set=replicas=2")
		assert.True(t, hasNewField(c.crd(trainingJobs)))
		c.stillThere(job)
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(webhooks), webhooks))
		assert.Equal(t, authority, webhooks.Webhooks[0].ClientConfig.CABundle)
	})
	t.Run("a rollback changes them back", func(t *testing.T) {
		c := c.in(t)
		c.mustHelm("rollback", release, "1")
		assert.False(t, hasNewField(c.crd(trainingJobs)))
		c.stillThere(job)
	})
	t.Run("an uninstallation keeps the kinds and their objects and nothing else", func(t *testing.T) {
		c := c.in(t)
		c.mustHelm("uninstall", release)
		c.await("the end of the rest", func(context.Context) (bool, error) {
			for _, name := range c.ofRelease() {
				if !strings.HasSuffix(name, ".example.com") && !strings.HasSuffix(name, ".dcnlab.com") {
					return false, nil
				}
			}
			return true, nil
		})
		assert.Len(t, c.ofRelease(), 8, "the kinds")
		c.stillThere(job)
	})
	t.Run("a new release of the name takes the kinds up", func(t *testing.T) {
		c := c.in(t)
		c.mustHelm("install", release, next)
		assert.True(t, hasNewField(c.crd(trainingJobs)))
		c.stillThere(job)
		c.mustHelm("uninstall", release)
	})
	t.Run("it is installed as it is published", func(t *testing.T) { c.installsWhatIsPublished(t, next) })
	t.Run("one of another name does so when it is told to", func(t *testing.T) {
		c := c.in(t)
		_, err := c.helm("install", "another", chart)
		require.ErrorContains(t, err, "invalid ownership metadata")
		c.mustHelm("install", "another", chart, "--take-ownership")
		c.stillThere(job)
	})
	t.Run("with crds.keep=false an uninstallation removes the kinds", func(t *testing.T) {
		c := c.in(t)
		assert.Contains(t, c.mustHelm("upgrade", "another", chart, "--set=crds.keep=false"), "WARNING: crds.keep is false")
		c.mustHelm("uninstall", "another")
		defer func() {
			if t.Failed() {
				t.Logf("still there: %v", c.ofRelease())
			}
		}()
		c.await("the end of everything", func(ctx context.Context) (bool, error) {
			var crd metav1.PartialObjectMetadata
			crd.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
			err := c.Get(ctx, client.ObjectKey{Name: trainingJobs}, &crd)
			return apierrors.IsNotFound(err) && len(c.ofRelease()) == 0, client.IgnoreNotFound(err)
		})
	})
}

func (c *cluster) stillThere(job *mlv1.TrainingJob) {
	c.t.Helper()
	var now mlv1.TrainingJob
	require.NoError(c.t, c.Get(c.t.Context(), client.ObjectKeyFromObject(job), &now))
	assert.Equal(c.t, job.UID, now.UID, "the job is the one that was made before")
}
