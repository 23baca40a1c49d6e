package aijob

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/dcnlab/spot-training-operator/internal/podend"
)

// isOverdue says whether a pod should have ended by now, and has the job reconciled again when it should.
func (p *planner) isOverdue(pod *corev1.Pod) bool {
	left, ends := podend.OverdueIn(p.now, pod)
	if ends && left > 0 {
		p.lookAgain(left)
	}
	return ends && left <= 0
}

// forceOverdue deletes overdue pods of a gang without waiting for their kubelet: its Service would publish them under the host names of
// the members that come after them.
func (p *planner) forceOverdue() {
	if isGang(p.job) {
		p.desired.force = podend.ToForce(p.now, p.pods)
	}
}
