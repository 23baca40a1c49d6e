package olm

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func TestExplain(t *testing.T) {
	ready := corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	waiting := corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
		Name: "main", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such image"}},
	}}}
	pod := func(name string, status corev1.PodStatus) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "olm", Name: name}, Status: status}
	}
	got := explainPods(t.Context(), fake.NewClientset(pod("good", ready), pod("bad", waiting), pod("done", corev1.PodStatus{Phase: corev1.PodSucceeded})), "olm")
	for _, want := range []string{"pod olm/bad is Pending", "ErrImagePull no such image"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q does not say %q", got, want)
		}
	}
	if strings.Contains(got, "olm/good") || strings.Contains(got, "olm/done") {
		t.Errorf("%q names a pod that is as it should be", got)
	}
	if got := explainPods(t.Context(), fake.NewClientset(), "olm"); got != "there are no pods in olm" {
		t.Errorf("no pods: %q", got)
	}
}
