package aijob

import (
	"slices"

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
// the members that come after them, also those of an earlier AIJob of the name.
func (p *planner) forceOverdue() {
	if isGang(p.job) {
		p.desired.force = podend.ToForce(p.now, slices.Concat(p.pods, p.former))
	}
}

// awaitsFormer says whether members of a gang must wait for pods of an earlier AIJob of the name, which have their host names. The garbage
// collector deletes these.
func (p *planner) awaitsFormer() bool {
	return isGang(p.job) && slices.ContainsFunc(p.former, func(pod *corev1.Pod) bool { return !p.isOverdue(pod) })
}
