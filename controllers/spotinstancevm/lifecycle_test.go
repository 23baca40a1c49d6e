package spotinstancevm

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
)

func TestAPIInstancesComeWithPodsAndGoWithoutThem(t *testing.T) {
	c := newCluster(t)
	c.start(newFuse(0))
	vm := c.vm("t4", func(vm *spotv1alpha1.SpotInstanceVM) {
		vm.Spec.IdleTimeout = &metav1.Duration{Duration: 700 * time.Millisecond}
	})
	pods := []client.Object{c.pod("t4", "bert", 0), c.pod("t4", "bert", 1)}

	now := c.await(vm, "two ready instances", c.agree(2))
	assert.Contains(t, now.Finalizers, spotv1alpha1.FinalizerInstances)
	for _, entry := range now.Status.ProvisionedInstances {
		assert.Equal(t, "SpotInstanceJob/bert", entry.AssignedJob)
		assert.Equal(t, zoneA, entry.Zone)
		assert.True(t, entry.JoinedCluster)
		assert.NotNil(t, entry.ReadyTime)
	}
	assert.True(t, meta.IsStatusConditionTrue(now.Status.Conditions, spotv1alpha1.ConditionReady), "%+v", now.Status.Conditions)
	assert.True(t, meta.IsStatusConditionTrue(now.Status.Conditions, spotv1alpha1.ConditionCredentialsValid))
	eventually(t, "the tokens to be revoked", func() bool { c.schedule(); return len(c.tokens()) == 0 })

	for _, pod := range pods {
		require.NoError(t, c.Delete(t.Context(), pod))
	}
	now = c.await(vm, "no instance", c.agree(0))
	assert.Len(t, c.gce.History(), 2)
	eventually(t, "the nodes to be gone", func() bool { return len(c.nodes("t4")) == 0 })

	require.NoError(t, c.Delete(t.Context(), vm))
	eventually(t, "the end of the SpotInstanceVM", func() bool { return c.now(vm) == nil })
}
