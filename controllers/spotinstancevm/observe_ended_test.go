package spotinstancevm

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
)

// A pod that has ended stays as long as its Job does, one that was deleted as long as its finalizers. Its instance must not stay with it.
func TestAnIdleNodeIsLookedAtAgainThoughAPodThatHasLeftIsOnIt(t *testing.T) {
	deleted := func(grace int64) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &metav1.Time{Time: noon}, &grace
			pod.Finalizers = []string{"batch.kubernetes.io/job-tracking"}
		}
	}
	in := func(phase corev1.PodPhase) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.Status.Phase = phase }
	}
	for name, test := range map[string]struct {
		is   func(*corev1.Pod)
		left bool
	}{
		"succeeded": {in(corev1.PodSucceeded), true}, "failed": {in(corev1.PodFailed), true}, "running": {in(corev1.PodRunning), false},
		"being stopped": {deleted(30), false}, "kept by a finalizer": {deleted(0), true},
	} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "train", Namespace: "team", Labels: map[string]string{spotv1alpha1.LabelSpotInstanceVM: "t4"}},
			Spec:       corev1.PodSpec{NodeName: "t4-abcde"},
		}
		test.is(pod)
		node := func(object client.Object) []string { return []string{object.(*corev1.Pod).Spec.NodeName} }
		reader := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(pod).
			WithIndex(&corev1.Pod{}, indexNode, node).WithIndex(&corev1.Pod{}, "spec.nodeName", node).Build()
		r := &Reconciler{pods: reader, Direct: reader}
		o := &observed{podsOn: map[string][]*corev1.Pod{}, rechecked: map[string]bool{}}
		is := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "t4-abcde"}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{
			{Key: spotv1alpha1.TaintIdle, Effect: corev1.TaintEffectNoSchedule},
		}}}
		require.NoError(t, r.observePodsOn(t.Context(), o, is))
		assert.Equal(t, test.left, o.rechecked["t4-abcde"], name)
		assert.Len(t, o.podsOn["t4-abcde"], map[bool]int{true: 0, false: 1}[test.left], name)
	}
}
