package spotinstancevm

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"

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
