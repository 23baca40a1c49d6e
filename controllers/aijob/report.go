package aijob

import (
	"cmp"
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
)

// report writes the status when it changed, tells the transition by an event, the log and metrics, and returns the job as it is then.
func (r *Reconciler) report(ctx context.Context, o observed, status aiplatformv1alpha1.AIJobStatus) (*aiplatformv1alpha1.AIJob, error) {
	if equality.Semantic.DeepEqual(&o.job.Status, &status) {
		return o.job, nil
	}
	next := o.job.DeepCopy()
	next.Status = status
	if err := reporting.Patch(ctx, r, o.job, next); err != nil {
		return nil, err
	}
	r.pacer.Wrote(client.ObjectKeyFromObject(o.job), o.now)
	r.load.wrote(o.now, isWaiting(o.job) && status.Phase == aiplatformv1alpha1.AIJobQueued) // which is only about its waiting
	var events []reporting.Event
	if event := eventOf(o.job, &status); event != nil && (!o.busy || event.Type != corev1.EventTypeNormal) {
		events = append(events, *event)
	}
	reporting.Tell(ctx, r.Recorder, o.job, reporting.Transition{
		From: string(o.job.Status.Phase), To: string(status.Phase), Before: o.job.Status.Conditions, After: status.Conditions,
	}, events...)
	r.count(o, &status)
	return next, nil
}

// eventOf is the event of a step to the next status; nil when there is nothing to tell.
func eventOf(job *aiplatformv1alpha1.AIJob, after *aiplatformv1alpha1.AIJobStatus) *reporting.Event {
	before := &job.Status
	entered, same := before.Phase != after.Phase, before.Reason == after.Reason
	switch after.Phase {
	case aiplatformv1alpha1.AIJobScheduled:
		switch {
		case after.Reason != reasons.AdmittedByQueue && (entered || !same):
			return &reporting.Event{Type: corev1.EventTypeWarning, Reason: after.Reason, Action: "Start", Note: after.Message}
		case entered:
			return &reporting.Event{Type: corev1.EventTypeNormal, Reason: reasons.EventScheduled, Action: "Schedule", Note: after.Message}
		}
		return nil
	case aiplatformv1alpha1.AIJobQueued:
		switch {
		case after.PreemptionCount > before.PreemptionCount && entered, isUserProblem(after.Reason) && (entered || !same):
			return &reporting.Event{Type: corev1.EventTypeWarning, Reason: after.Reason, Action: "Queue", Note: after.Message}
		case after.Reason == reasons.Requeued && entered:
			return &reporting.Event{Type: corev1.EventTypeNormal, Reason: reasons.Requeued, Action: "Queue", Note: after.Message}
		}
		return nil
	}
	told, known := toldOf[after.Phase]
	if !entered || !known {
		return nil
	}
	if after.Phase == aiplatformv1alpha1.AIJobRetrying {
		told.Note = "; the job is queued again at " + after.NextRetryTime.UTC().Format(time.RFC3339)
	}
	told.Reason, told.Note = cmp.Or(told.Reason, after.Reason), after.Message+told.Note
	return &told
}

// toldOf are the events of phases that a job enters; one without a reason has that of the status.
var toldOf = map[aiplatformv1alpha1.AIJobPhase]reporting.Event{
	aiplatformv1alpha1.AIJobRunning:    {Type: corev1.EventTypeNormal, Reason: reasons.EventRunning, Action: "Run"},
	aiplatformv1alpha1.AIJobSucceeded:  {Type: corev1.EventTypeNormal, Reason: reasons.EventCompleted, Action: "Complete"},
	aiplatformv1alpha1.AIJobRetrying:   {Type: corev1.EventTypeWarning, Action: "Retry"},
	aiplatformv1alpha1.AIJobFailed:     {Type: corev1.EventTypeWarning, Action: "Fail"},
	aiplatformv1alpha1.AIJobDeadLetter: {Type: corev1.EventTypeWarning, Action: "Fail"},
	aiplatformv1alpha1.AIJobCancelled:  {Type: corev1.EventTypeNormal, Reason: reasons.Cancelled, Action: "Cancel"},
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
		r.Metrics.Dispatched(o.now.Sub(refineTime(queuedAt(o.job), o.seen)))
	case after.Phase.Ended():
		r.Metrics.Completed(string(after.Phase))
		ran := before.Phase == aiplatformv1alpha1.AIJobRunning || before.Phase == aiplatformv1alpha1.AIJobScheduled
		if ran && after.StartTime != nil && after.CompletionTime != nil {
			r.Metrics.Executed(string(o.job.Spec.JobType), o.now.Sub(after.StartTime.Time))
		}
	}
}

// refineTime is a time of the API, which has whole seconds, more exactly when this manager saw what happened then.
func refineTime(at, seen time.Time) time.Time {
	if since := seen.Sub(at); since >= 0 && since < 2*time.Second {
		return seen
	}
	return at
}
