package trainingjob

import (
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/internal/queueing"
)

// eviction is why an admitted job loses its place.
type eviction struct {
	reason, message string
	// unstarted says that the workers could not be started in the place: the job is queued again only after a pause.
	unstarted bool
}

// preempted begins the message of an eviction for another job.
const preempted = "preempted by "

// findEviction says why a job must be evicted; nil when it keeps its place.
func (p *planner) findEviction() *eviction {
	if by := p.decision.Preempted; by != nil {
		return &eviction{reason: reasons.Preempted, message: fmt.Sprintf("%s%s %s/%s (priority %d)", preempted, by.Kind, by.Namespace, by.Name, by.Priority)}
	}
	if p.workers != nil {
		return p.findUnstarted()
	}
	status, places := &p.job.Status, len(placement(p.job.Status.Admission))
	if places != int(p.job.Spec.NumWorkers) {
		return &eviction{reason: reasons.EvictedByQueue, message: fmt.Sprintf(
			"spec.numWorkers is %d, but the queue admitted %d workers", p.job.Spec.NumWorkers, places)}
	}
	mayHaveLostNode := podend.IsLoss(status.Reason) && status.Reason != reasons.PodDeleted && status.Reason != reasons.JobDeleted
	if mayHaveLostNode && status.State == mlv1.StateRestarting {
		return &eviction{reason: reasons.EvictedByQueue, message: "the node of a lost worker may be gone: " + status.FailureReason}
	}
	return nil
}

// findUnstarted says what has kept workers from starting for longer than a place is kept for it; nil when nothing has.
func (p *planner) findUnstarted() *eviction {
	failed := isTrue(jobCondition(p.workers, batchv1.JobFailed)) || isTrue(jobCondition(p.workers, batchv1.JobFailureTarget))
	if failed || p.workers.DeletionTimestamp != nil || build.AttemptOf(p.workers) < p.status.RestartCount {
		return nil // it makes no pods any more
	}
	pods := p.workerPods()
	for _, pod := range pods {
		if found := p.delayOf(pod); found != nil && p.isOver(found) {
			return &found.eviction
		}
	}
	if found := p.networkDelay(pods); found != nil && p.isOver(found) {
		return &found.eviction
	}
	if p.status.State == mlv1.StateRunning || !p.lacksPods(pods) {
		return nil
	}
	if since := startedAt(p.workers).Add(podCreation); !p.now.Before(since) {
		reason, message := p.refusedPods(len(pods))
		if found := (&delay{eviction{reason, message, true}, since}); p.isOver(found) {
			return &found.eviction
		}
	}
	return nil
}

// delay is what keeps workers from starting, and since when.
type delay struct {
	eviction

	since time.Time
}

// isOver says whether a job has kept its place for long enough in spite of a delay.
func (p *planner) isOver(d *delay) bool {
	left := d.since.Add(queueing.Patience(d.reason)).Sub(p.now)
	if left > 0 {
		p.lookAgain(left)
	}
	return left <= 0
}

// delayOf is what keeps a pod from starting; nil when it has started, or goes. While others of an elastic job train, only a node matters
// that is missing: another place may have one.
func (p *planner) delayOf(pod *corev1.Pod) *delay {
	if pod.Status.Phase != corev1.PodPending || pod.DeletionTimestamp != nil {
		return nil
	}
	found := podend.DelayOf(pod)
	patience := queueing.Patience(found.Reason)
	reason, message := describeObstacle(pod)
	switch found.Reason {
	case reasons.Unschedulable:
		if p.awaitsVolumes(found.Detail) {
			found.Reason, patience = reasons.ClaimPending, queueing.Patience(reasons.ClaimPending)
		}
		reason, message = found.Reason, fmt.Sprintf("pod %s was not bound to the nodes that the queue assigned within %s%s", pod.Name, patience, podend.Suffix(found.Detail))
	case reasons.PodsNotStarted:
		if hasBegun(pod) {
			return nil
		}
		reason, message = found.Reason, fmt.Sprintf("pod %s did not start within %s: see its events, kubectl describe pod %s -n %s", pod.Name, patience, pod.Name, pod.Namespace)
	}
	if pod.Spec.NodeName != "" && p.status.State == mlv1.StateRunning {
		return nil
	}
	since := found.Since
	if since.IsZero() {
		since = pod.CreationTimestamp.Time
	}
	return &delay{eviction{reason, message, true}, since}
}

// hasBegun says whether a container of a pod runs or has run, as the one that restores a checkpoint.
func hasBegun(pod *corev1.Pod) bool {
	return slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses), func(status corev1.ContainerStatus) bool {
		return status.State.Running != nil || status.State.Terminated != nil
	})
}

// mayEvict says whether the job has a place in an AIJobQueue, no workers in it, and is not being evicted already.
func (o *observed) mayEvict() bool {
	return build.QueueName(o.job) != "" && o.workers == nil && build.IsAdmitted(&o.job.Status) && o.job.Status.Admission.Releasing == ""
}

// evict writes the decision down that the job is evicted.
func (p *planner) evict(why *eviction) {
	of, message := p.status.Admission, why.message
	switch {
	case why.reason == reasons.Preempted:
		of.PreemptionCount++
	case why.unstarted:
		due := ptr.To(metav1.NewTime(p.now.Add(queueing.RetryPause(int(of.FailedStarts)))).Rfc3339Copy())
		of.FailedStarts++
		until := due.UTC().Format(time.RFC3339)
		message += fmt.Sprintf("; the job is evicted from AIJobQueue %s, and ", build.QueueName(p.job))
		if why.reason == reasons.Unschedulable {
			p.avoid(due)
			message += fmt.Sprintf("avoids nodes that took no pods until %s", until)
		} else {
			of.RetryTime = due
			message += fmt.Sprintf("is queued again at %s, or when its spec is changed", until)
		}
	}
	of.Releasing = message
	p.condition(reasons.ConditionAdmitted, false, why.reason, message)
	p.condition(reasons.ConditionSuspended, false, why.reason, message)
	p.lookAgain(time.Millisecond)
}

// evictionReason is the reason of an eviction with the message, which the condition has told since it began.
func (o *observed) evictionReason(why string) string {
	if strings.HasPrefix(why, preempted) {
		return reasons.Preempted
	}
	if told := o.lastAdmission(); told != nil {
		return told.Reason
	}
	return reasons.EvictedByQueue
}

// releaseAdmission stops the workers, which save a checkpoint as when the job is suspended, and queues the job again once none runs. A job
// that was not preempted keeps its age.
func (p *planner) releaseAdmission() bool {
	p.setAdmission()
	was := p.job.Status.Admission
	if p.isDone() {
		p.complete() // before it could be stopped
		return true
	}
	if !p.stopWorkers() {
		return true
	}
	reason, message := p.evictionReason(was.Releasing), "evicted from the queue; waiting for readmission: "+was.Releasing
	p.status.Admission = &mlv1.AdmissionStatus{
		QueuedTime: was.QueuedTime, PreemptionCount: was.PreemptionCount, FailedStarts: was.FailedStarts, RetryTime: was.RetryTime,
		AvoidedNodes: was.AvoidedNodes, VolumeTopology: p.volumeTopology(),
	}
	if reason == reasons.Preempted {
		p.status.Admission.QueuedTime = ptr.To(metav1.NewTime(p.now))
	}
	if was.RetryTime != nil {
		message = was.Releasing
		p.lookAgain(was.RetryTime.Sub(p.now))
	}
	p.setAdmission()
	p.setSuspendedFor(reason, message)
	return true
}

// endPauses has the job queued again when its pause is over, or its spec was changed, and forgets in the same way which nodes it avoids.
func (p *planner) endPauses() {
	of := p.status.Admission
	p.forgetAvoided()
	if of.RetryTime == nil {
		return
	}
	if left := of.RetryTime.Sub(p.now); left > 0 && !p.isEdited() {
		p.lookAgain(left)
		return
	}
	of.RetryTime = nil
}

// isEdited says whether the spec was changed since the status was written.
func (o *observed) isEdited() bool { return o.job.Generation != o.job.Status.ObservedGeneration }

// lastAdmission is the condition of a job that waits, as it was told last; nil when there is none.
func (o *observed) lastAdmission() *metav1.Condition {
	told := meta.FindStatusCondition(o.job.Status.Conditions, reasons.ConditionAdmitted)
	if told == nil || told.Status != metav1.ConditionFalse {
		return nil
	}
	return told
}
