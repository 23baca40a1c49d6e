package spotinstancevm

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/cloud"
	"github.com/dcnlab/spot-training-operator/internal/cloud/inventory"
)

// kubectl taint leaves no time on a taint of this effect.
func TestAnInstanceWithATaintWithoutATimeIsDeletedInTheEnd(t *testing.T) {
	tainted := func(node *corev1.Node) {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: "cloud.google.com/impending-node-termination", Effect: corev1.TaintEffectNoSchedule})
	}
	for ago, want := range map[time.Duration]spotv1alpha1.InstanceState{
		time.Second: spotv1alpha1.InstanceRunning, 10 * time.Minute: spotv1alpha1.InstanceDeleting,
	} {
		s := aScene(has("t4-x", spotv1alpha1.InstanceRunning, isNode(tainted), isReady(time.Hour), func(_ *scene, i *instance) {
			i.PreemptionNoticeTime = &metav1.Time{Time: noon.Add(-ago)}
		}))

		d := plan(s.observed)

		require.Len(t, d.status.ProvisionedInstances, 1)
		assert.Equal(t, want, d.status.ProvisionedInstances[0].State, "first seen %s ago", ago)
	}
}

// A manager that was away, or slow, learns of an instance when its Node exists already.
func TestANodeIsRecognizedThoughTheManagerLearnedLateOfItsInstance(t *testing.T) {
	learned := func(_ *scene, i *instance) { i.CreationTime = &metav1.Time{Time: noon.Add(time.Minute)} }
	s := aScene(has("t4-x", spotv1alpha1.InstanceRunning, isNode(), learned))
	require.Nil(t, s.instances[0].node, "it is older than what the status says of the instance")

	entry := plan(s.observed).status.ProvisionedInstances[0]

	assert.Equal(t, noon.Add(-time.Minute), entry.CreationTime.Time, "as the provider says")
	assert.NotNil(t, s.attach(&instance{ProvisionedInstance: entry}).node)
}

func TestANodeIsRecognizedThoughTheClockOfTheAPIServerIsBehind(t *testing.T) {
	for behind, want := range map[time.Duration]bool{2 * time.Second: true, time.Minute: false} {
		s := aScene(has("t4-x", spotv1alpha1.InstanceRunning, isNode(func(node *corev1.Node) {
			node.CreationTimestamp = metav1.NewTime(noon.Add(-time.Minute - behind))
		})))
		assert.Equal(t, want, s.instances[0].node != nil, behind)
	}
}

// That the next instance exists says nothing of whether its image can join.
func TestAnInstanceThatExistsDoesNotEndThePauseAfterOneThatDidNotJoin(t *testing.T) {
	for reason, kept := range map[string]bool{
		reasons.JoinFailed: true, reasons.PodDoesNotFit: true, reasons.ProviderQuotaExceeded: false,
	} {
		s := aScene(waiting("0"), has("t4-x", spotv1alpha1.InstancePlanned, remembers(memo{create: done()}), func(_ *scene, i *instance) {
			i.seen = &cloud.Instance{Name: i.Name, Zone: i.Zone, State: "RUNNING", Created: noon}
		}))
		s.memo.hold = hold{until: noon.Add(time.Minute), generation: 1, failures: 3, problem: problem{reason: reason}}

		d := plan(s.observed)

		assert.Equal(t, spotv1alpha1.InstanceRunning, d.status.ProvisionedInstances[0].State)
		assert.Equal(t, kept, d.hold.failures == 3, reason)
	}
}

func TestRoomIsNotMeasuredOnNodesOfAnOldKind(t *testing.T) {
	s := aScene(has("t4-x", spotv1alpha1.InstanceRunning, isReady(time.Hour), runs("9"), func(_ *scene, i *instance) {
		i.seen.MachineType = "n1-standard-4"
	}))
	s.vm.Spec.GCP.MachineType = "n1-standard-16"
	s.types = []machineType{{name: "n1-standard-16", shape: &cloud.Shape{MilliCPU: 16000, MemoryBytes: 60 << 30}, zones: []string{"a", "b"}}}
	s.pods = append(s.pods, aPod("big", refused, replica("0"), needs("10")))

	assert.Contains(t, outlineOf(plan(s.observed)).Acts, "create t4-new1")
}

func TestAListFromBeforeAStockoutIsNotAdopted(t *testing.T) {
	s := aScene(waiting("0"), has("t4-x", spotv1alpha1.InstancePlanned, func(_ *scene, i *instance) { i.Zone = "b" }))
	s.unrecorded = []inventory.Found{{Instance: cloud.Instance{Name: "t4-x", Zone: "a", State: "PROVISIONING", Spot: true}, AsOf: noon.Add(-time.Second)}}

	assert.Equal(t, []string{"t4-x b SPOT PLANNED"}, outlineOf(plan(s.observed)).Instances)
}

func TestAnOperationThatMayNotBeReadDoesNotKeepAnInstance(t *testing.T) {
	unreadable := pending("op")
	unreadable.err = &cloud.Error{Class: cloud.Permission, Message: "compute.zoneOperations.get is missing"}
	s := aScene(has("t4-x", spotv1alpha1.InstanceDeleting, exists("RUNNING"), remembers(memo{create: unreadable})))
	assert.Equal(t, []string{"delete t4-x"}, outlineOf(plan(s.observed)).Acts)

	s = aScene(has("t4-x", spotv1alpha1.InstanceDeleting, unlisted, remembers(memo{create: unreadable, remove: unreadable, nodeless: true, revoked: true})))
	s.listed["a"] = noon
	assert.Empty(t, outlineOf(plan(s.observed)).Instances, "the list says that it is gone")
}

// The clock of the manager may be ahead: the Node that joined meanwhile is the instance's all the same.
func TestAnInstanceIsAsOldAsItsProviderSays(t *testing.T) {
	began := noon.Add(-20 * time.Second)
	granted := done()
	granted.operation = cloud.Operation{Name: "op", Zone: "a", Done: true, Began: began}
	s := aScene(waiting("0"), has("t4-x", spotv1alpha1.InstancePlanned, remembers(memo{create: granted})))
	entry := plan(s.observed).status.ProvisionedInstances[0]
	assert.Equal(t, began, entry.CreationTime.Time)
	assert.True(t, isNodeOf(aNode("t4-x", func(node *corev1.Node) { node.CreationTimestamp = metav1.NewTime(began.Add(time.Second)) }), s.vm, &entry))
}
