package aijob

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
)

// report writes the status when it changed, tells of the transition by an event and metrics, and returns the job as it is then.
func (r *Reconciler) report(ctx context.Context, o observed, status aiplatformv1alpha1.AIJobStatus) (*aiplatformv1alpha1.AIJob, error) {
	if equality.Semantic.DeepEqual(&o.job.Status, &status) {
		return o.job, nil
	}
	next := o.job.DeepCopy()
	next.Status = status
	// The lock makes sure that a decision is made from the newest status: a retry must not be counted twice.
	lock := client.MergeFromWithOptions(o.job, client.MergeFromWithOptimisticLock{})
	if err := r.Status().Patch(ctx, next, lock, fieldOwner); err != nil {
		return nil, fmt.Errorf("write the status: %w", err)
	}
	r.memory.tell(client.ObjectKeyFromObject(o.job), o.now)
	r.load.wrote(o.now, couldWait(o.job, &status))
	if kind, reason, action, note := newsOf(o.job, &status); reason != "" && (!o.busy || kind != corev1.EventTypeNormal) {
		r.Recorder.Eventf(o.job, nil, kind, reason, action, "%s", note)
	}
	r.count(o, &status)
	return next, nil
}

// couldWait says whether a status is only about a job's waiting.
func couldWait(job *aiplatformv1alpha1.AIJob, after *aiplatformv1alpha1.AIJobStatus) bool {
	return waits(job) && after.Phase == aiplatformv1alpha1.AIJobQueued
}

// newsOf is the event of a step to the next status; without a reason when there is nothing to tell.
func newsOf(job *aiplatformv1alpha1.AIJob, after *aiplatformv1alpha1.AIJobStatus) (kind, reason, action, note string) {
	before := &job.Status
	if before.Phase == after.Phase && !newsOfWaiting(before, after) {
		return "", "", "", ""
	}
	switch after.Phase {
	case aiplatformv1alpha1.AIJobScheduled:
		if after.Reason != aiplatformv1alpha1.ReasonAdmitted {
			return corev1.EventTypeWarning, after.Reason, "Start", after.Message
		}
		return corev1.EventTypeNormal, "Scheduled", "Schedule", after.Message
	case aiplatformv1alpha1.AIJobRunning:
		return corev1.EventTypeNormal, "Running", "Run", after.Message
	case aiplatformv1alpha1.AIJobSucceeded:
		return corev1.EventTypeNormal, "Completed", "Complete", after.Message
	case aiplatformv1alpha1.AIJobRetrying:
		return corev1.EventTypeWarning, after.Reason, "Retry",
			fmt.Sprintf("%s; the job is queued again at %s", after.Message, after.NextRetryTime.UTC().Format(time.RFC3339))
	case aiplatformv1alpha1.AIJobFailed, aiplatformv1alpha1.AIJobDeadLetter:
		return corev1.EventTypeWarning, after.Reason, "Fail", after.Message
	case aiplatformv1alpha1.AIJobCancelled:
		return corev1.EventTypeNormal, "Cancelled", "Cancel", after.Message
	case aiplatformv1alpha1.AIJobQueued:
		switch {
		case after.PreemptionCount > before.PreemptionCount:
			return corev1.EventTypeWarning, after.Reason, "Queue", after.Message
		case readyReason(after) != readyReason(before) && readyReason(after) != aiplatformv1alpha1.ReasonReady:
			return corev1.EventTypeWarning, after.Reason, "Queue", after.Message
		case after.Reason == aiplatformv1alpha1.ReasonRequeued:
			return corev1.EventTypeNormal, "Requeued", "Queue", after.Message
		}
	}
	return "", "", "", ""
}

// newsOfWaiting says whether there is something to tell of a job that still waits, for its place or for its pods to start.
func newsOfWaiting(before, after *aiplatformv1alpha1.AIJobStatus) bool {
	switch after.Phase {
	case aiplatformv1alpha1.AIJobScheduled:
		return after.Reason != before.Reason && after.Reason != aiplatformv1alpha1.ReasonAdmitted
	case aiplatformv1alpha1.AIJobQueued:
		return readyReason(before) != readyReason(after)
	}
	return false
}

func readyReason(status *aiplatformv1alpha1.AIJobStatus) string {
	for i := range status.Conditions {
		if status.Conditions[i].Type == aiplatformv1alpha1.ConditionReady {
			return status.Conditions[i].Reason
		}
	}
	return ""
}

// count counts what the step to the next status tells.
func (r *Reconciler) count(o observed, after *aiplatformv1alpha1.AIJobStatus) {
	before := &o.job.Status
	if before.Phase == after.Phase {
		return
	}
	if isNew(o.job) {
		r.Metrics.Submitted()
	}
	switch {
	case after.Phase == aiplatformv1alpha1.AIJobScheduled:
		r.Metrics.Dispatched(o.now.Sub(sharper(queuedAt(o.job), o.seen)))
	case ended(after.Phase):
		r.Metrics.Completed(string(after.Phase))
		ran := before.Phase == aiplatformv1alpha1.AIJobRunning || before.Phase == aiplatformv1alpha1.AIJobScheduled
		if ran && after.StartTime != nil && after.CompletionTime != nil {
			r.Metrics.Executed(string(o.job.Spec.JobType), o.now.Sub(after.StartTime.Time))
		}
	}
}

// sharper is a time of the API, which has whole seconds, told more exactly when this manager saw what happened then.
func sharper(at, seen time.Time) time.Time {
	if since := seen.Sub(at); since >= 0 && since < 2*time.Second {
		return seen
	}
	return at
}
