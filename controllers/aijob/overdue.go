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

// forceOverdue deletes overdue pods without waiting for their kubelet where others take their place: of a gang, whose Service would publish
// them under the host names of the members that come after them, and of an earlier AIJob of the name, which may have the names of the pods to be created.
func (p *planner) forceOverdue() {
	switch {
	case isGang(p.job):
		p.desired.force = podend.ToForce(p.now, slices.Concat(p.pods, p.former))
	case len(p.desired.members) > 0:
		p.desired.force = podend.ToForce(p.now, p.former)
	}
}

// awaitsFormer says whether members of a gang must wait for pods of an earlier AIJob of the name, which have their host names. The garbage
// collector deletes these.
func (p *planner) awaitsFormer() bool {
	return isGang(p.job) && slices.ContainsFunc(p.former, func(pod *corev1.Pod) bool { return !p.isOverdue(pod) })
}
