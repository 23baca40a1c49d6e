package spotinstancevm

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
)

func TestAPIAZoneThatDoesNotExistDoesNotHoldUpDeletion(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(newFuse(0))
	vm := c.vm("t4")
	c.pod("t4", "bert", 0)
	c.await(vm, "a ready instance", c.agree(1))
	c.change(vm, func(vm *spotv1alpha1.SpotInstanceVM) { vm.Spec.GCP.Zones = append(vm.Spec.GCP.Zones, "us-central9-z") })
	c.await(vm, "the mistake to be told", func(vm *spotv1alpha1.SpotInstanceVM) bool {
		ready := meta.FindStatusCondition(vm.Status.Conditions, reasons.ConditionReady)
		return ready.Status == metav1.ConditionFalse && strings.Contains(ready.Message, "us-central9-z")
	})

	require.NoError(t, c.Delete(t.Context(), vm))
	eventually(t, "the end of the SpotInstanceVM", func() bool { return c.now(vm) == nil })
	require.Empty(t, c.gce.Instances())
}

func TestAPIAMachineTypeThatCannotBeLookedUpIsNotCalledTooSmall(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(newFuse(0))
	vm := c.vm("t4", func(vm *spotv1alpha1.SpotInstanceVM) { vm.Spec.GCP.Zone, vm.Spec.GCP.Zones = "us-central9-z", nil })
	c.pod("t4", "bert", 0)
	now := c.await(vm, "the mistake to be told", func(vm *spotv1alpha1.SpotInstanceVM) bool {
		return meta.IsStatusConditionFalse(vm.Status.Conditions, reasons.ConditionCapacityAvailable)
	})
	capacity := meta.FindStatusCondition(now.Status.Conditions, reasons.ConditionCapacityAvailable)
	require.Equal(t, reasons.InvalidSpec, capacity.Reason, capacity.Message)
	require.Contains(t, capacity.Message, "us-central9-z")
}
