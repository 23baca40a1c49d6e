package aijob

import (
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
)

// isUserProblem says whether what a job waits for is a mistake that a user must correct.
func isUserProblem(reason string) bool {
	switch reason {
	case reasons.QueueNotFound, reasons.ClusterNotFound, reasons.QueueRequired, reasons.NamespaceNotSelected, reasons.PriorityTooHigh:
		return true
	}
	return false
}

// isChanged says whether a status has changed in more than figures: those may wait.
func isChanged(before, after *aiplatformv1alpha1.AIJobStatus) bool {
	return !equality.Semantic.DeepEqual(withoutFigures(before), withoutFigures(after))
}

// withoutFigures is a status without what changes all the time: counts, the place in the queue, and what the job waits for there.
func withoutFigures(status *aiplatformv1alpha1.AIJobStatus) *aiplatformv1alpha1.AIJobStatus {
	bare := status.DeepCopy()
	bare.QueuePosition, bare.Members, bare.Message = 0, nil, ""
	if status.Members != nil && status.Members.Cleared > 0 { // what the next plan must know
		bare.Members = &aiplatformv1alpha1.MembersStatus{Cleared: status.Members.Cleared}
	}
	bare.ObservedGeneration, bare.UID = 0, ""
	waits := status.Phase == aiplatformv1alpha1.AIJobQueued
	if waits && !isUserProblem(bare.Reason) {
		bare.Reason = ""
	}
	for i := range bare.Conditions {
		condition := &bare.Conditions[i]
		condition.Message, condition.ObservedGeneration = "", 0
		if waits && !isUserProblem(condition.Reason) {
			condition.Reason = ""
		}
	}
	return bare
}

// holdBackFigures keeps figures as they were written for a while, so that of many jobs in a queue that moves not each writes its status
// with every step of the queue.
func (p *planner) holdBackFigures(status *aiplatformv1alpha1.AIJobStatus) {
	if equality.Semantic.DeepEqual(&p.job.Status, status) || p.job.Status.ObservedGeneration != status.ObservedGeneration {
		return
	}
	interval := figuresInterval
	switch {
	case p.busy: // with thousands of waiting jobs there would be time for nothing else
		p.postpone(p.now.Add(farInterval))
		return
	case p.written.IsZero():
		return
	case status.QueuePosition > near && p.job.Status.QueuePosition > near:
		interval = farInterval
	}
	if due := p.written.Add(interval); p.now.Before(due) {
		p.postpone(due)
	}
}

// postpone leaves the status as it is until then.
func (p *planner) postpone(due time.Time) {
	p.desired.status = *p.job.Status.DeepCopy()
	p.lookAgainAt(due)
}
