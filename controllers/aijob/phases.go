package aijob

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/internal/queueing"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
)

// conditionsOf says which conditions become true and false with a phase.
var conditionsOf = map[aiplatformv1alpha1.AIJobPhase]struct{ are, areNot []string }{
	aiplatformv1alpha1.AIJobQueued:     {[]string{reasons.ConditionQueued}, []string{reasons.ConditionScheduled, reasons.ConditionReady}},
	aiplatformv1alpha1.AIJobScheduled:  {[]string{reasons.ConditionScheduled}, []string{reasons.ConditionQueued, reasons.ConditionReady}},
	aiplatformv1alpha1.AIJobRunning:    {[]string{reasons.ConditionReady}, nil},
	aiplatformv1alpha1.AIJobRetrying:   {nil, []string{reasons.ConditionScheduled, reasons.ConditionReady}},
	aiplatformv1alpha1.AIJobSucceeded:  {[]string{reasons.ConditionComplete, reasons.ConditionReady, reasons.ConditionScheduled}, []string{reasons.ConditionQueued}},
	aiplatformv1alpha1.AIJobCancelled:  {nil, []string{reasons.ConditionQueued, reasons.ConditionScheduled, reasons.ConditionReady}},
	aiplatformv1alpha1.AIJobFailed:     failed,
	aiplatformv1alpha1.AIJobDeadLetter: failed,
}

var failed = struct{ are, areNot []string }{
	[]string{reasons.ConditionFailed}, []string{reasons.ConditionQueued, reasons.ConditionScheduled, reasons.ConditionReady},
}

// enter puts the job into a phase.
func (p *planner) enter(status *aiplatformv1alpha1.AIJobStatus, phase aiplatformv1alpha1.AIJobPhase, reason, message string) {
	status.Phase, status.Reason, status.Message, status.URL = phase, reason, message, ""
	if phase == aiplatformv1alpha1.AIJobRunning {
		status.URL = urlOf(p.job)
	}
	set := func(kinds []string, is metav1.ConditionStatus) {
		for _, kind := range kinds {
			reporting.Set(&status.Conditions, p.job.Generation, p.now, kind, is, reason, message)
		}
	}
	set(conditionsOf[phase].are, metav1.ConditionTrue)
	set(conditionsOf[phase].areNot, metav1.ConditionFalse)
}

// queue puts the job into its queue.
func (p *planner) queue(status *aiplatformv1alpha1.AIJobStatus, reason, message string) {
	status.QueuedTime = at(p.now)
	if isNew(p.job) {
		status.QueuedTime = ptr.To(p.job.CreationTimestamp)
	}
	status.NextRetryTime, status.QueuePosition, status.ClusterName = nil, 0, ""
	status.DefaultResources = p.defaultResources.For(p.job.Spec.Resources)
	meta.RemoveStatusCondition(&status.Conditions, reasons.ConditionFailed)
	p.enter(status, aiplatformv1alpha1.AIJobQueued, reason, message)
}

// wait says what the job waits for.
func (p *planner) wait(status *aiplatformv1alpha1.AIJobStatus) {
	wait := p.decision.Wait
	if status.Phase != aiplatformv1alpha1.AIJobQueued {
		p.queue(status, wait.Reason, wait.Message)
	}
	status.QueuePosition = int32(wait.Position)
	p.enter(status, aiplatformv1alpha1.AIJobQueued, wait.Reason, wait.Message)
}

// admit writes down on which nodes the job is admitted.
func (p *planner) admit(status *aiplatformv1alpha1.AIJobStatus) {
	admitted := p.decision.Admitted
	if status.QueuedTime == nil {
		status.QueuedTime = ptr.To(p.job.CreationTimestamp)
	}
	status.Assignments, status.ScheduledTime, status.ClusterName = assignmentsOf(admitted.Nodes), at(p.now), admitted.Cluster
	status.StartTime, status.QueuePosition, status.ExitCode, status.Outputs = nil, 0, nil, nil
	status.Members = &aiplatformv1alpha1.MembersStatus{Total: membersOf(p.job)}
	status.DefaultResources = p.defaultResources.For(p.job.Spec.Resources)
	p.enter(status, aiplatformv1alpha1.AIJobScheduled, reasons.AdmittedByQueue, startMessage(admitted.Nodes))
}

// run says that all pods run.
func (p *planner) run(status *aiplatformv1alpha1.AIJobStatus) {
	message := "the pod runs"
	if total := membersOf(p.job); total > 1 {
		message = fmt.Sprintf("all %d pods run", total)
	}
	status.StartTime, status.FailedStarts = at(p.now), 0
	p.enter(status, aiplatformv1alpha1.AIJobRunning, reasons.Running, message)
}

// count counts the pods of the current attempt. Pods that are gone count as succeeded as far as the status says that so many had: those
// may be cleared away.
func (p *planner) count(status *aiplatformv1alpha1.AIJobStatus, members []*corev1.Pod) {
	counts := aiplatformv1alpha1.MembersStatus{Total: int32(len(members))}
	gone := int32(0)
	for _, pod := range members {
		switch {
		case pod == nil:
			gone++
		case pod.Status.Phase == corev1.PodSucceeded:
			counts.Succeeded++
		case podend.HasFailed(pod):
			counts.Failed++
		case isStarted(pod):
			counts.Active++
		}
	}
	if was := p.job.Status.Members; was != nil && status.Phase == aiplatformv1alpha1.AIJobRunning {
		counts.Cleared = min(gone, was.Cleared+max(was.Succeeded-was.Cleared-counts.Succeeded, 0))
		counts.Succeeded += counts.Cleared
	}
	status.Members = &counts
}

// finish writes down the end of the job.
func (p *planner) finish(status *aiplatformv1alpha1.AIJobStatus, phase aiplatformv1alpha1.AIJobPhase, reason, message string) {
	status.CompletionTime, status.NextRetryTime, status.QueuePosition, status.UnsettledFailures = at(p.now), nil, 0, nil
	p.enter(status, phase, reason, message)
	p.stopLive(status) // when none is left, the same step frees the nodes
}

func (p *planner) succeed(status *aiplatformv1alpha1.AIJobStatus, members []*corev1.Pod) {
	message := "the pod ended with exit code 0"
	if len(members) > 1 {
		message = fmt.Sprintf("all %d pods ended with exit code 0", len(members))
	}
	if status.StartTime == nil { // it ended before it was seen running
		status.StartTime = at(p.now)
		if members[0] != nil {
			if first := program.Terminated(members[0]); first != nil && !first.StartedAt.IsZero() {
				status.StartTime = ptr.To(first.StartedAt)
			}
		}
	}
	status.ExitCode, status.Outputs = ptr.To[int32](0), outputsOf(members)
	p.finish(status, aiplatformv1alpha1.AIJobSucceeded, reasons.Completed, message)
}

// preempt frees the nodes for another job. The job is queued again once its pods have ended.
func (p *planner) preempt(status *aiplatformv1alpha1.AIJobStatus) {
	by := p.decision.Preempted
	message := fmt.Sprintf("preempted by %s %s/%s (priority %d, this job has %d); the job is queued again",
		by.Kind, by.Namespace, by.Name, by.Priority, ptr.Deref(p.job.Spec.Priority, 50))
	status.PreemptionCount++
	p.queue(status, reasons.Preempted, message)
	p.stopLive(status)
}

// fail ends an attempt.
func (p *planner) fail(status *aiplatformv1alpha1.AIJobStatus, found *failure, members []*corev1.Pod) {
	status.ExitCode, status.Outputs = found.exitCode, outputsOf(members)
	if found.kind == counted && found.exitCode != nil { // its program ran, whether or not that was reported
		status.FailedStarts = 0
	}
	used, allowed := retriesUsed(p.job), ptr.Deref(p.job.Spec.RetryPolicy.MaxRetries, defaultRetries)
	changeUnsettled(status, func(list *podend.Unsettled) {
		if found.kind != counted {
			list.Drop()
			return
		}
		list.Note(p.now, found.silent, used < allowed)
	})
	switch {
	case found.kind == refused, found.kind == lost && status.Phase == aiplatformv1alpha1.AIJobScheduled:
		// The job may never be able to start, and keeps resources from others at every attempt.
		p.pause(status, found, jittered(p.job, queueing.RetryPause(int(status.FailedStarts))))
		status.PreemptionCount++
		status.FailedStarts++
	case found.kind == lost:
		status.PreemptionCount++
		p.queue(status, found.reason, found.message+"; the job is queued again, which does not count as a retry")
		p.stopLive(status)
	case found.kind == hopeless:
		p.finish(status, aiplatformv1alpha1.AIJobFailed, found.reason, found.message)
	case used >= allowed && p.mustSettle(status, found):
	case used >= allowed:
		p.finish(status, aiplatformv1alpha1.AIJobDeadLetter, reasons.RetriesExhausted, fmt.Sprintf(
			"failed %d times, spec.retryPolicy.maxRetries is %d; last %s: %s; the annotation %s requeues it",
			used+1, allowed, found.reason, found.message, aiplatformv1alpha1.AnnotationRequeue))
	default:
		status.RetryCount++
		p.pause(status, found, backoff(p.job, used))
	}
}

// pause has the job wait before it is queued again.
func (p *planner) pause(status *aiplatformv1alpha1.AIJobStatus, found *failure, pause time.Duration) {
	due := p.now.Add(pause)
	if whole := due.Truncate(time.Second); whole.Before(due) { // times in the API have whole seconds
		due = whole.Add(time.Second)
	}
	status.NextRetryTime, status.QueuePosition = at(due), 0
	p.enter(status, aiplatformv1alpha1.AIJobRetrying, found.reason, found.message)
	p.stopLive(status)
}

// overtime is an attempt that takes longer than the spec allows.
func (p *planner) overtime(status *aiplatformv1alpha1.AIJobStatus) *failure {
	if p.job.Spec.TimeoutSeconds == nil || status.StartTime == nil {
		return nil
	}
	limit := time.Duration(min(*p.job.Spec.TimeoutSeconds, aiplatformv1alpha1.MaxTimeoutSeconds)) * time.Second
	if due := status.StartTime.Add(limit); p.now.Before(due) {
		p.lookAgainAt(due)
		return nil
	}
	return &failure{
		reason:  reasons.DeadlineExceeded,
		message: fmt.Sprintf("ran longer than spec.timeoutSeconds (%d)", *p.job.Spec.TimeoutSeconds),
	}
}

// requeue brings the job back from DeadLetter. That counts as one retry, after which all retries are available again.
func (p *planner) requeue(status *aiplatformv1alpha1.AIJobStatus) {
	status.RetryCount++
	status.CompletionTime, status.ExitCode, status.Outputs, status.UID = nil, nil, nil, p.job.UID
	p.queue(status, reasons.Requeued, "requeued from DeadLetter with all its retries")
}

// refuse ends an attempt whose pods the API server refused.
func refuse(o observed, found *failure) aiplatformv1alpha1.AIJobStatus {
	p := &planner{observed: o}
	p.desired.status = *o.job.Status.DeepCopy()
	p.fail(&p.desired.status, found, nil)
	return p.desired.status
}
