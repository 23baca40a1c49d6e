package aijob

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
)

// longestMessage is what a condition takes.
const longestMessage = 32768

// set sets a condition; its time changes with its status only.
func (p *planner) set(status *aiplatformv1alpha1.AIJobStatus, kind string, is metav1.ConditionStatus, reason, message string) {
	if len(message) > longestMessage {
		message = strings.ToValidUTF8(message[:longestMessage], "")
	}
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: kind, Status: is, Reason: reason, Message: message, ObservedGeneration: p.job.Generation,
		LastTransitionTime: metav1.NewTime(p.now).Rfc3339Copy(),
	})
}

// ready says whether all that the user gave is in order: what the job waits for otherwise is no fault.
func (p *planner) ready(status *aiplatformv1alpha1.AIJobStatus, reason, message string) {
	switch reason {
	case aiplatformv1alpha1.ReasonQueueNotFound, aiplatformv1alpha1.ReasonClusterNotFound:
		p.set(status, aiplatformv1alpha1.ConditionReady, metav1.ConditionFalse, reason, message)
	default:
		p.set(status, aiplatformv1alpha1.ConditionReady, metav1.ConditionTrue, aiplatformv1alpha1.ReasonReady, "the operator acts on the job")
	}
}

// changed says whether a status has changed in more than figures: those may wait.
func changed(before, after *aiplatformv1alpha1.AIJobStatus) bool {
	return !equality.Semantic.DeepEqual(withoutFigures(before), withoutFigures(after))
}

// withoutFigures is a status without what changes all the time: counts, the place in the queue, and what the job waits for there.
func withoutFigures(status *aiplatformv1alpha1.AIJobStatus) *aiplatformv1alpha1.AIJobStatus {
	bare := status.DeepCopy()
	bare.QueuePosition, bare.Members, bare.Message = 0, nil, ""
	if status.Members != nil && status.Members.Cleared > 0 { // what the next plan must know
		bare.Members = &aiplatformv1alpha1.MembersStatus{Cleared: status.Members.Cleared}
	}
	bare.ObservedGeneration = 0
	waits := status.Phase == aiplatformv1alpha1.AIJobQueued
	if waits {
		bare.Reason = ""
	}
	for i := range bare.Conditions {
		condition := &bare.Conditions[i]
		condition.Message, condition.ObservedGeneration = "", 0
		if waits && condition.Type != aiplatformv1alpha1.ConditionReady {
			condition.Reason = ""
		}
	}
	return bare
}

// holdBackFigures keeps figures as they were written for a while, so that many jobs in a queue that moves do not each write with
// every step of it.
func (p *planner) holdBackFigures(status *aiplatformv1alpha1.AIJobStatus) {
	if equality.Semantic.DeepEqual(&p.job.Status, status) {
		return
	}
	if p.job.Status.ObservedGeneration != status.ObservedGeneration {
		return
	}
	if p.busy { // with thousands that wait there would be time for nothing else
		p.desired.status = *p.job.Status.DeepCopy()
		p.lookAgain(farInterval)
		return
	}
	interval := figuresInterval
	if status.QueuePosition > near && p.job.Status.QueuePosition > near {
		interval = farInterval
	}
	if p.told.IsZero() {
		return
	}
	if due := p.told.Add(interval); p.now.Before(due) {
		p.desired.status = *p.job.Status.DeepCopy()
		p.lookAgainAt(due)
	}
}
