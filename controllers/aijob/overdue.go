package aijob

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/dcnlab/spot-training-operator/internal/podend"
)

// overdue is how long after its grace period a pod counts as ended. Its kubelet is gone then, and nothing ends the pod while the object
// of its node exists.
const overdue = 15 * time.Second

// isOverdue says whether a pod should have ended by now, and has the job reconciled again when it should.
func (p *planner) isOverdue(pod *corev1.Pod) bool {
	if pod.DeletionTimestamp == nil || podend.IsEnded(pod) {
		return false
	}
	due := pod.DeletionTimestamp.Add(overdue) // the timestamp is when the grace period ends
	if p.now.Before(due) {
		p.lookAgainAt(due)
		return false
	}
	return true
}

// forceOverdue deletes overdue pods of a gang without waiting for their kubelet: its Service would publish them under the host names of
// the members that come after them.
func (p *planner) forceOverdue() {
	if !isGang(p.job) {
		return
	}
	for _, pod := range p.pods {
		forced := ptr.Deref(pod.DeletionGracePeriodSeconds, -1) == 0 // and only a finalizer keeps it
		if !forced && p.isOverdue(pod) {
			p.desired.force = append(p.desired.force, pod)
		}
	}
}
