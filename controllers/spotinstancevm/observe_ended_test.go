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

// A pod that has ended stays as long as its Job does. Its instance must not stay with it.
func TestAnIdleNodeIsLookedAtAgainThoughAnEndedPodIsOnIt(t *testing.T) {
	for phase, rechecked := range map[corev1.PodPhase]bool{
		corev1.PodSucceeded: true, corev1.PodFailed: true, corev1.PodRunning: false,
	} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "train", Namespace: "team", Labels: map[string]string{spotv1alpha1.LabelSpotInstanceVM: "t4"}},
			Spec:       corev1.PodSpec{NodeName: "t4-abcde"}, Status: corev1.PodStatus{Phase: phase},
		}
		node := func(object client.Object) []string { return []string{object.(*corev1.Pod).Spec.NodeName} }
		reader := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(pod).
			WithIndex(&corev1.Pod{}, indexNode, node).WithIndex(&corev1.Pod{}, "spec.nodeName", node).Build()
		r := &Reconciler{pods: reader, Direct: reader}
		o := &observed{podsOn: map[string][]*corev1.Pod{}, rechecked: map[string]bool{}}
		is := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "t4-abcde"}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{
			{Key: spotv1alpha1.TaintIdle, Effect: corev1.TaintEffectNoSchedule},
		}}}
		require.NoError(t, r.observePodsOn(t.Context(), o, is))
		assert.Equal(t, rechecked, o.rechecked["t4-abcde"], "%s", phase)
		assert.Len(t, o.podsOn["t4-abcde"], map[bool]int{true: 0, false: 1}[rechecked], "%s", phase)
	}
}
