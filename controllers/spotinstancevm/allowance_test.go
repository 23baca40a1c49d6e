package spotinstancevm

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

func TestAPIANamespaceThatIsNotAllowedAsksForNothingUntilItIs(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	builders.ForbidSpotInstances(t, c, c.namespace)
	m := c.start(newFuse(0))
	vm := c.vm("t4")
	c.pod("t4", "bert", 0)
	allowed := func(is bool) func(*spotv1alpha1.SpotInstanceVM) bool {
		return func(vm *spotv1alpha1.SpotInstanceVM) bool {
			allowed := meta.FindStatusCondition(vm.Status.Conditions, reasons.ConditionAllowed)
			return allowed != nil && (allowed.Status == "True") == is
		}
	}
	now := c.await(vm, "the condition", allowed(false))
	for _, kind := range []string{reasons.ConditionAllowed, reasons.ConditionReady, reasons.ConditionCapacityAvailable} {
		is := meta.FindStatusCondition(now.Status.Conditions, kind)
		assert.Equal(t, reasons.NamespaceNotAllowed, is.Reason)
		assert.Contains(t, is.Message, "kubectl label namespace "+c.namespace+" training.dcnlab.com/spot-instances=allowed")
	}
	assert.Empty(t, c.gce.Requests(), "the provider is asked for nothing")
	assert.Empty(t, c.tokens())

	builders.AllowSpotInstances(t, c, c.namespace)
	c.await(vm, "a ready instance", func(vm *spotv1alpha1.SpotInstanceVM) bool { return allowed(true)(vm) && c.agree(1)(vm) })

	builders.ForbidSpotInstances(t, c, c.namespace)
	c.pod("t4", "bert", 1)
	c.await(vm, "the condition again", allowed(false))
	m.stop()
	c.start(newFuse(0))
	require.NoError(t, c.Delete(t.Context(), vm))
	eventually(t, "the end of the SpotInstanceVM", func() bool { return c.now(vm) == nil })
	assert.Empty(t, c.gce.Instances(), "what there was is deleted")
	assert.Len(t, c.gce.History(), 1, "and nothing more was created")
}

// The attack: a user of an allowed namespace has the operator create instances in any project that it reaches, which act by any service account
// that it may hand out.
func TestAPITheOperatorsOwnIdentityIsUsedOnlyForWhatIsAllowed(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(newFuse(0))
	vm := c.vm("t4", func(vm *spotv1alpha1.SpotInstanceVM) {
		vm.Spec.GCP.CredentialsSecretRef, vm.Spec.GCP.ServiceAccount = nil, "owner@project.iam.gserviceaccount.com"
	})
	c.pod("t4", "bert", 0)
	refused := func(vm *spotv1alpha1.SpotInstanceVM) bool {
		is := meta.FindStatusCondition(vm.Status.Conditions, reasons.ConditionAllowed)
		return is != nil && is.Reason == reasons.IdentityNotAllowed
	}
	now := c.await(vm, "the condition", refused)
	for _, kind := range []string{reasons.ConditionAllowed, reasons.ConditionReady} {
		assert.Contains(t, meta.FindStatusCondition(now.Status.Conditions, kind).Message, "name a Secret in spec.gcp.credentialsSecretRef, or a cluster "+
			"administrator allows it by kubectl annotate --overwrite namespace "+c.namespace+` training.dcnlab.com/operator-identity='[{"project":"`+
			c.gce.Project()+`","network":"default","serviceAccount":"owner@project.iam.gserviceaccount.com"}]'`)
	}

	c.allowIdentity(`[{"project":"` + c.gce.Project() + `","serviceAccount":"node@project.iam.gserviceaccount.com"}]`)
	eventually(t, "what is allowed to be in the remedy", func() bool {
		is := meta.FindStatusCondition(c.now(vm).Status.Conditions, reasons.ConditionAllowed)
		return strings.Contains(is.Message, "node@project") && strings.Contains(is.Message, "owner@project")
	})
	assert.Empty(t, c.gce.Requests(), "the provider is asked for nothing")
	assert.Zero(t, c.own.Load())

	c.change(vm, func(vm *spotv1alpha1.SpotInstanceVM) {
		vm.Spec.GCP.ServiceAccount = "node@project.iam.gserviceaccount.com"
	})
	c.await(vm, "a ready instance", c.agree(1))
	assert.NotZero(t, c.own.Load())
}

// allowIdentity lists what the operator's own identity may be used for.
func (c *cluster) allowIdentity(list string) {
	c.t.Helper()
	namespace := &corev1.Namespace{}
	require.NoError(c.t, c.Get(c.t.Context(), client.ObjectKey{Name: c.namespace}, namespace))
	metav1.SetMetaDataAnnotation(&namespace.ObjectMeta, spotv1alpha1.AnnotationOperatorIdentity, list)
	require.NoError(c.t, c.Update(c.t.Context(), namespace))
}

func TestIdentityForbiddenIn(t *testing.T) {
	tests := map[string]struct {
		list      string
		change    func(*spotv1alpha1.GCP)
		inProject bool
		message   string // part of it; empty when it is allowed
	}{
		"by default nothing":  {message: `operator-identity='[{"project":"p","network":"n","serviceAccount":"a"}]'`},
		"what is listed":      {list: `[{"project":"p","network":"n","serviceAccount":"a"}]`, inProject: true},
		"one of several":      {list: `[{"project":"q"},{"project":"p","network":"n","serviceAccount":"a"}]`, inProject: true},
		"another project":     {list: `[{"project":"q","network":"n","serviceAccount":"a"}]`, message: `[{"project":"q",`},
		"another network":     {list: `[{"project":"p","serviceAccount":"a"}]`, inProject: true, message: `"network":"n"`},
		"another account":     {list: `[{"project":"p","network":"n"}]`, inProject: true, message: `"serviceAccount":"a"`},
		"not a list":          {list: `p`, message: "is not a valid list in JSON"},
		"the default network": {list: `[{"project":"p"}]`, change: func(gcp *spotv1alpha1.GCP) { gcp.Network, gcp.ServiceAccount = "", "" }, inProject: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			gcp := &spotv1alpha1.GCP{Project: "p", Network: "n", ServiceAccount: "a"}
			if test.change != nil {
				test.change(gcp)
			}
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team", Annotations: map[string]string{spotv1alpha1.AnnotationOperatorIdentity: test.list}}}
			forbidden, inProject := identityForbiddenIn(namespace, gcp)
			assert.Equal(t, test.message != "", forbidden.exists())
			assert.Contains(t, forbidden.message, test.message)
			assert.Equal(t, test.inProject, inProject)
		})
	}
}
