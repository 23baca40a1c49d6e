package podend

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// Overdue is how long after its grace period a pod counts as ended. Its kubelet is gone then, and nothing ends the pod while the object
// of its node exists.
const Overdue = 15 * time.Second

// OverdueIn is how long until a pod is overdue, 0 or less when it is; false when it has ended or is not being deleted.
func OverdueIn(now time.Time, pod *corev1.Pod) (time.Duration, bool) {
	if pod.DeletionTimestamp == nil || IsEnded(pod) {
		return 0, false
	}
	return pod.DeletionTimestamp.Add(Overdue).Sub(now), true // the timestamp is when the grace period ends
}

// IsOverdue says whether a pod should have ended by now.
func IsOverdue(now time.Time, pod *corev1.Pod) bool {
	left, ends := OverdueIn(now, pod)
	return ends && left <= 0
}

// IsGone says whether only finalizers keep a pod that has no grace period left: its kubelet has ended it, or it was deleted by force. Without
// finalizers its object would be gone.
func IsGone(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil && ptr.Deref(pod.DeletionGracePeriodSeconds, -1) == 0
}

// ToForce are the overdue pods that must be deleted without a grace period before others start under their host names: a Service would
// publish both. Of a pod for which that was done already only a finalizer keeps the object.
func ToForce(now time.Time, pods []*corev1.Pod) []*corev1.Pod {
	var list []*corev1.Pod
	for _, pod := range pods {
		if IsOverdue(now, pod) && !IsGone(pod) {
			list = append(list, pod)
		}
	}
	return list
}
