package spotinstancevm

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/cloud"
	"github.com/dcnlab/spot-training-operator/internal/cloud/gcp"
	"github.com/dcnlab/spot-training-operator/test/fakes/fakegce"
)

// plant creates an instance without the operator, and waits until it runs.
func (c *cluster) plant(gce *fakegce.Server, name string, labels map[string]string) {
	c.t.Helper()
	provider, err := gcp.New(c.t.Context(), gcp.Options{Project: gce.Project(), Credentials: gce.CredentialsJSON(), Endpoint: gce.URL()})
	require.NoError(c.t, err)
	_, err = provider.Create(c.t.Context(), cloud.InstanceSpec{
		Name: name, Zone: zoneA, RequestID: string(uuid.NewUUID()), Spot: true, MachineType: "n1-standard-4",
		Image: "projects/p/global/images/family/node", DiskGB: 50, DiskType: "pd-ssd", Labels: labels,
	})
	require.NoError(c.t, err)
	eventually(c.t, "the planted instance to run", func() bool {
		is, exists := gce.Instance(name)
		return exists && is.State == "RUNNING"
	})
}

// foreignNode is the Node of a machine that the operator has nothing to do with.
func (c *cluster) foreignNode(name string) *corev1.Node {
	c.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"test": c.namespace}}}
	require.NoError(c.t, c.Create(c.t.Context(), node))
	before := node.DeepCopy()
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
	require.NoError(c.t, c.Status().Patch(c.t.Context(), node, client.MergeFrom(before)))
	return node
}

// isUntouched checks that nothing has written to a Node, nor deleted it.
func (c *cluster) isUntouched(node *corev1.Node) {
	c.t.Helper()
	var now corev1.Node
	require.NoError(c.t, c.Get(c.t.Context(), client.ObjectKeyFromObject(node), &now))
	assert.Nil(c.t, now.DeletionTimestamp)
	assert.Equal(c.t, node.Labels, now.Labels)
	assert.Equal(c.t, node.Annotations, now.Annotations)
	assert.Equal(c.t, node.Spec, now.Spec)
}

func TestAPIAnInstanceWithTheLabelsInAnotherProjectIsLeftAlone(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.other = fakegce.Start(t, fakegce.Options{Project: "intruder", Latency: briefly})
	vm := c.vm("t4")
	m := c.start(newFuse(0))
	ours := m.reconciler.ownerOf(vm).Labels()
	// In the project of the SpotInstanceVM, and among the nodes, something else has the name of the planted instance.
	node := c.foreignNode("t4-plant")
	c.plant(c.gce, "t4-plant", nil)
	c.plant(c.other, "t4-plant", ours)
	calls := len(c.other.Requests())

	// Who plants it has a SpotInstanceVM, so that the operator lists the project.
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "intruder", Namespace: c.namespace}}
	secret.Data = map[string][]byte{credentialsKey: c.other.CredentialsJSON()}
	require.NoError(t, c.Create(t.Context(), secret))
	c.vm("mallory", func(vm *spotv1alpha1.SpotInstanceVM) {
		vm.Spec.GCP.Project, vm.Spec.GCP.CredentialsSecretRef.Name = "intruder", "intruder"
	})
	c.pod("t4", "bert", 0)
	now := c.await(vm, "an instance, after the list that has the planted one", func(vm *spotv1alpha1.SpotInstanceVM) bool {
		return vm.Status.ReadyInstances == 1 && c.other.Calls("compute.instances.list", zoneA) >= 2
	})
	assert.Len(t, now.Status.ProvisionedInstances, 1)
	for _, request := range c.other.Requests()[calls:] {
		assert.NotContains(t, []string{"compute.instances.insert", "compute.instances.delete"}, request.Method)
	}
	require.NoError(t, c.Delete(t.Context(), vm))
	eventually(t, "the end of the SpotInstanceVM", func() bool { return c.now(vm) == nil })
	_, exists := c.gce.Instance("t4-plant")
	assert.True(t, exists, "what has its name in the right project stays")
	c.isUntouched(node)
}

func TestAPIAnInstanceNamedLikeANodeThatExistsLeavesTheNodeAlone(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	vm := c.vm("t4")
	m := c.start(newFuse(0))
	node := c.foreignNode("t4-taken")
	c.plant(c.gce, "t4-taken", m.reconciler.ownerOf(vm).Labels())
	c.await(vm, "the adoption of the instance", func(vm *spotv1alpha1.SpotInstanceVM) bool { return len(vm.Status.ProvisionedInstances) == 1 })
	require.NoError(t, c.gce.Preempt("t4-taken"))
	c.await(vm, "its end", func(vm *spotv1alpha1.SpotInstanceVM) bool { return len(vm.Status.ProvisionedInstances) == 0 })
	c.isUntouched(node)

	again := c.foreignNode("t4-again")
	c.plant(c.gce, "t4-again", m.reconciler.ownerOf(vm).Labels())
	c.await(vm, "the adoption of another", func(vm *spotv1alpha1.SpotInstanceVM) bool { return len(vm.Status.ProvisionedInstances) == 1 })
	require.NoError(t, c.Delete(t.Context(), vm))
	eventually(t, "the end of the SpotInstanceVM", func() bool { return c.now(vm) == nil })
	assert.Empty(t, c.gce.Instances())
	c.isUntouched(node)
	c.isUntouched(again)
}

func TestDeletionLeavesAMachineAloneWhoseLabelsAreOthers(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	vm := c.vm("t4")
	r := &Reconciler{cluster: "this"}
	provider, err := gcp.New(t.Context(), gcp.Options{Project: c.gce.Project(), Credentials: c.gce.CredentialsJSON(), Endpoint: c.gce.URL()})
	require.NoError(t, err)
	c.mute = true
	c.plant(c.gce, "t4-plain", nil)
	c.plant(c.gce, "t4-abcde", r.ownerOf(vm).Labels())
	c.plant(c.gce, "prod-db", r.ownerOf(vm).Labels()) // put onto a machine that was there
	ours, _ := c.gce.Instance("t4-abcde")

	for _, name := range []string{"t4-plain", "prod-db"} {
		_, err = deleteOwn(t.Context(), provider, zoneA, name, r.ownerOf(vm))
		assert.Equal(t, cloud.NotFound, cloud.ClassOf(err), name)
		assert.ErrorContains(t, err, "does not have the labels of its SpotInstanceVM")
	}
	_, err = deleteOwn(t.Context(), provider, zoneA, "1"+ours.ID, r.ownerOf(vm))
	assert.Equal(t, cloud.NotFound, cloud.ClassOf(err), "the one of this ID is gone; another may have its name")
	assert.Zero(t, c.gce.Calls("compute.instances.delete", ""))
	_, err = deleteOwn(t.Context(), provider, zoneA, ours.ID, r.ownerOf(vm))
	require.NoError(t, err)
	assert.Equal(t, 1, c.gce.Calls("compute.instances.delete", ""))
}
