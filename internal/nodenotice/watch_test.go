package nodenotice_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/dcnlab/spot-training-operator/internal/nodenotice"
)

func TestTrimKeepsWhatTheControllersRead(t *testing.T) {
	capacity := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}
	since := metav1.NewTime(earlier)
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: "n", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}, ResourceVersion: "7",
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet"}},
		},
		Spec: corev1.NodeSpec{ProviderID: "gce://p/z/n", PodCIDR: "10.0.0.0/24", Unschedulable: true, Taints: []corev1.Taint{{Key: "k"}}},
		Status: corev1.NodeStatus{
			Capacity: capacity, Allocatable: capacity,
			Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, LastHeartbeatTime: since, LastTransitionTime: since}},
			Images:     []corev1.ContainerImage{{Names: []string{"large"}}},
		},
	}
	got, err := nodenotice.Trim(node)
	require.NoError(t, err)
	assert.Equal(t, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}, ResourceVersion: "7"},
		Spec:       corev1.NodeSpec{ProviderID: "gce://p/z/n", Unschedulable: true, Taints: []corev1.Taint{{Key: "k"}}},
		Status: corev1.NodeStatus{
			Allocatable: capacity,
			Addresses:   []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}},
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, LastTransitionTime: since}},
		},
	}, got)

	tombstone := cache.DeletedFinalStateUnknown{Key: "n"}
	got, err = nodenotice.Trim(tombstone)
	require.NoError(t, err)
	assert.Equal(t, tombstone, got)

	_, err = nodenotice.Trim(&corev1.Pod{})
	assert.ErrorContains(t, err, "*v1.Pod is no node")
}

func TestNoticeChanged(t *testing.T) {
	quiet := makeNode()
	stamp := earlier.Format(time.RFC3339Nano)
	going := makeNode(annotated(stamp, "MetadataServer"))
	// The same moment, written with an offset.
	offset := makeNode(annotated(earlier.In(time.FixedZone("", 7200)).Format(time.RFC3339Nano), "MetadataServer"))
	labelled := makeNode(annotated(stamp, "MetadataServer"), func(node *corev1.Node) { node.Labels = map[string]string{"new": ""} })
	p := nodenotice.NoticeChanged()

	assert.False(t, p.Create(event.CreateEvent{Object: quiet}))
	assert.True(t, p.Create(event.CreateEvent{Object: going}), "a manager that starts sees the notices that are there")
	assert.False(t, p.Delete(event.DeleteEvent{Object: quiet}))
	assert.True(t, p.Delete(event.DeleteEvent{Object: going}))
	assert.False(t, p.Create(event.CreateEvent{Object: &corev1.Pod{}}))
	assert.False(t, p.Generic(event.GenericEvent{Object: going}))
	for name, test := range map[string]struct {
		before, after *corev1.Node
		want          bool
	}{
		"nothing":             {quiet, quiet, false},
		"the notice came":     {quiet, going, true},
		"it was withdrawn":    {going, quiet, true},
		"it stays":            {going, labelled, false},
		"it stays, offset":    {offset, offset.DeepCopy(), false},
		"it is another":       {makeNode(annotated(stamp, "HostMaintenance")), going, true},
		"a taint that stays":  {makeNode(tainted("karpenter.sh/disrupted", "", nil)), makeNode(tainted("karpenter.sh/disrupted", "", nil)), false},
		"a taint was removed": {makeNode(tainted("karpenter.sh/disrupted", "", nil)), quiet, true},
	} {
		assert.Equal(t, test.want, p.Update(event.UpdateEvent{ObjectOld: test.before, ObjectNew: test.after}), name)
	}
}
