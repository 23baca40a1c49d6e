package spotinstancevm

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/cloud"
	"github.com/dcnlab/spot-training-operator/internal/cloud/gcp"
	"github.com/dcnlab/spot-training-operator/internal/cloud/inventory"
)

// populate has so many SpotInstanceVMs exist, each with a ready instance on which a pod runs, as an earlier manager left
// them. They are in three zones, by turns.
func (c *cluster) populate(m *manager, count int) {
	c.t.Helper()
	ctx := c.t.Context()
	provider, err := gcp.New(ctx, gcp.Options{
		Project: c.gce.Project(), Credentials: c.gce.CredentialsJSON(), Endpoint: c.gce.URL(), Rate: 100000, Burst: 100000,
	})
	require.NoError(c.t, err)
	zones := []string{zoneA, zoneB, "us-central1-c"}
	for n := range count {
		name := fmt.Sprintf("vm%d", n)
		vm := c.vm(name, func(vm *spotv1alpha1.SpotInstanceVM) { vm.Spec.GCP.Zone, vm.Spec.GCP.Zones = zones[n%3], nil })
		owner := inventory.Owner{Cluster: m.reconciler.cluster, VM: client.ObjectKeyFromObject(vm), UID: vm.UID}
		_, err := provider.Create(ctx, cloud.InstanceSpec{
			Name: name + "-aaaaa", Zone: zones[n%3], RequestID: fmt.Sprintf("00000000-0000-4000-8000-%012d", n), Spot: true,
			MachineType: "n1-standard-4", Image: vm.Spec.VMImage, DiskGB: 50, DiskType: "pd-ssd", Labels: owner.Labels(),
		})
		require.NoError(c.t, err)
		require.NoError(c.t, c.Create(ctx, c.newPod(name, "bert", n, func(pod *corev1.Pod) { pod.Spec.NodeName = name + "-aaaaa" })))
	}
}

// census counts the instances that the statuses say are ready.
func (c *cluster) census() (ready int) {
	c.t.Helper()
	var vms spotv1alpha1.SpotInstanceVMList
	require.NoError(c.t, c.List(c.t.Context(), &vms, client.InNamespace(c.namespace)))
	for i := range vms.Items {
		ready += int(vms.Items[i].Status.ReadyInstances)
	}
	return ready
}

// steadyState is how many SpotInstanceVMs the operator is to look after with one list for each zone.
const steadyState = 500

func TestBudgetOneListForEachZoneServesFiveHundredSpotInstanceVMs(t *testing.T) {
	c := newCluster(t)
	f := newFuse(0)
	m := c.start(f)
	begin := time.Now()
	c.populate(m, steadyState)
	eventually(t, "all instances to be adopted and ready", func() bool { return c.census() == steadyState })
	require.Len(t, c.gce.History(), steadyState)
	t.Logf("%d instances known and ready after %s", steadyState, time.Since(begin).Round(time.Millisecond))
	quiet := len(f.log())
	eventually(t, "quiet", func() bool {
		before := quiet
		time.Sleep(time.Second)
		quiet = len(f.log())
		return quiet == before
	})

	c.gce.ForgetCalls()
	const intervals = 20
	time.Sleep(intervals * m.interval)
	for _, zone := range []string{zoneA, zoneB, "us-central1-c"} {
		lists := c.gce.Calls("compute.instances.list", zone)
		t.Logf("zone %s: %d lists in %d intervals", zone, lists, intervals)
		assert.LessOrEqual(t, lists, intervals+1)
		assert.GreaterOrEqual(t, lists, intervals/2, "lists go on")
	}
	assert.Equal(t, c.gce.Calls("compute.instances.list", ""), c.gce.Calls("", ""), "nothing else is asked: no instance, no operation")
	assert.Len(t, f.log(), quiet, "and nothing is written")
}

// BenchmarkReconcileAtRest is what one SpotInstanceVM of 500 costs when nothing changed.
func BenchmarkReconcileAtRest(b *testing.B) {
	c := newCluster(b)
	m := c.start(newFuse(0))
	c.populate(m, steadyState)
	eventually(b, "all instances to be adopted and ready", func() bool { return c.census() == steadyState })
	for n := 0; b.Loop(); n++ {
		var vm spotv1alpha1.SpotInstanceVM
		key := types.NamespacedName{Namespace: c.namespace, Name: fmt.Sprintf("vm%d", n%steadyState)}
		require.NoError(b, m.reconciler.Get(b.Context(), key, &vm))
		o, _, err := m.reconciler.observe(b.Context(), &vm)
		require.NoError(b, err)
		d := plan(o)
		if len(d.actions) > 0 {
			b.Fatalf("it is not at rest: %v", d.actions)
		}
	}
}
