package aijob

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/admission"
)

// observed is all that a plan is made from.
type observed struct {
	now time.Time
	job *aiplatformv1alpha1.AIJob
	// pods of this job, of all its tries, those that are being deleted too.
	pods []*corev1.Pod
	// service says whether the gang's Service exists.
	service bool
	// decision of admission; decided is false when there is none yet.
	decision admission.Decision
	decided  bool
	// told is when the status was last written by this manager; zero when that is not known.
	told time.Time
	// busy says that this manager writes the status of many jobs, spare that there is time for one that could wait.
	busy, spare bool
	// hidden says that pods among these were not in the cache, which tells of no change of theirs.
	hidden bool
	// seen is when this manager first saw the job.
	seen time.Time
}

// desired is what a plan wants. When the status changes in more than figures, that is written first and a new plan made from it:
// the status is the only record of what was decided, and what is done follows from it alone.
type desired struct {
	status aiplatformv1alpha1.AIJobStatus
	// stop are pods to stop with their grace period, prune pods of earlier tries that have ended, force those to delete without any
	// grace, since nobody ends them.
	stop, prune, force []*corev1.Pod
	// members whose pods are to be created, each on its node; service says that the gang's Service must be created before.
	members []placed
	service bool
	// requeued removes the annotation by which the job was put back into its queue, now that it is.
	requeued bool
	// remove deletes the job, whose time to live is over.
	remove bool
	// again is when to look again though nothing happens; 0 for never.
	again time.Duration
}

// placed is a member and its node.
type placed struct {
	member int32
	node   string
}

const (
	// firstDecision is how long a new job waits for a decision before its status says that it waits.
	firstDecision = time.Second
	// refusalPause is how long a job waits at first that the cluster refused to start, longestRefusalPause at most.
	refusalPause, longestRefusalPause = 30 * time.Second, 30 * time.Minute
	// figuresInterval and farInterval are how often figures alone are written: the counts of members, the place in the queue and
	// what the job waits for. Of thousands that wait only the first are told often; a busy manager tells none.
	figuresInterval, farInterval = 5 * time.Second, time.Minute
	// shortRun is how soon after they got their place jobs may end that a busy manager never tells to be Running.
	shortRun = 10 * time.Second
	// hiddenInterval is how often pods are read that the cache does not have.
	hiddenInterval = 10 * time.Second
	// near is the last place in the queue that is told often.
	near = 10
)

// planner makes one plan.
type planner struct {
	observed

	desired desired
}

// plan says what to do for a job. It is a pure function.
func plan(o observed) desired {
	p := &planner{observed: o}
	p.desired.status = *o.job.Status.DeepCopy()
	status := &p.desired.status
	status.ObservedGeneration = o.job.Generation
	switch {
	case ended(status.Phase):
		p.afterTheEnd(status)
	case isDeleting(o.job):
		p.cancel(status, "the AIJob is being deleted")
	case ptr.Deref(o.job.Spec.Cancel, false):
		p.cancel(status, "spec.cancel is true")
	case status.Phase == aiplatformv1alpha1.AIJobScheduled || status.Phase == aiplatformv1alpha1.AIJobRunning:
		p.active(status)
	case status.Phase == aiplatformv1alpha1.AIJobRetrying:
		p.retrying(status)
	default:
		p.waiting(status)
	}
	if changed(&o.job.Status, status) {
		p.desired = desired{status: p.desired.status}
		return p.desired
	}
	p.holdBackFigures(status)
	p.forceOverdue()
	if o.hidden {
		p.lookAgain(hiddenInterval)
	}
	return p.desired
}

// ended says whether a job has come to its end.
func ended(phase aiplatformv1alpha1.AIJobPhase) bool {
	switch phase {
	case aiplatformv1alpha1.AIJobSucceeded, aiplatformv1alpha1.AIJobFailed, aiplatformv1alpha1.AIJobDeadLetter,
		aiplatformv1alpha1.AIJobCancelled:
		return true
	}
	return false
}

// isDeleting says whether the job is being deleted, and only stays until its finalizers are gone. That ends it like a cancellation:
// finalizers may stay for long, and until the object is gone nothing else stops its pods.
func isDeleting(job *aiplatformv1alpha1.AIJob) bool { return job.DeletionTimestamp != nil }

// lookAgain sees to it that the job is looked at again after a time at the latest.
func (p *planner) lookAgain(after time.Duration) {
	after = max(after, time.Millisecond)
	if p.desired.again == 0 || after < p.desired.again {
		p.desired.again = after
	}
}

// lookAgainAt is lookAgain at a time.
func (p *planner) lookAgainAt(at time.Time) { p.lookAgain(at.Sub(p.now)) }

// live are the pods that have not ended, and may still do so.
func (p *planner) live() []*corev1.Pod {
	var list []*corev1.Pod
	for _, pod := range p.pods {
		if !podEnded(pod) && !p.isOverdue(pod) {
			list = append(list, pod)
		}
	}
	return list
}

// stopLive stops what still runs, and says whether nothing does any more.
func (p *planner) stopLive(status *aiplatformv1alpha1.AIJobStatus) bool {
	live := p.live()
	for _, pod := range live {
		if pod.DeletionTimestamp == nil {
			p.desired.stop = append(p.desired.stop, pod)
		}
	}
	if len(live) == 0 {
		status.Assignments = nil
		if status.Members != nil {
			status.Members.Active = 0
		}
	}
	return len(live) == 0
}

// afterTheEnd stops what still runs, brings a job back from DeadLetter when asked to, and deletes it in time.
func (p *planner) afterTheEnd(status *aiplatformv1alpha1.AIJobStatus) {
	quiet := p.stopLive(status)
	if isDeleting(p.job) {
		return
	}
	if status.Phase == aiplatformv1alpha1.AIJobDeadLetter {
		if _, asked := p.job.Annotations[aiplatformv1alpha1.AnnotationRequeue]; asked && quiet {
			p.requeue(status)
		}
		return
	}
	if p.job.Spec.TTLSecondsAfterFinished == nil || status.CompletionTime == nil {
		return
	}
	due := status.CompletionTime.Add(time.Duration(*p.job.Spec.TTLSecondsAfterFinished) * time.Second)
	if p.now.Before(due) {
		p.lookAgainAt(due)
		return
	}
	p.desired.remove = quiet
}

// retrying waits for the end of the pause, and of the pods of the last try.
func (p *planner) retrying(status *aiplatformv1alpha1.AIJobStatus) {
	quiet := p.stopLive(status)
	if due := timeOf(status.NextRetryTime, p.now); p.now.Before(due) {
		p.lookAgainAt(due)
	} else if quiet {
		p.queue(status, aiplatformv1alpha1.ReasonRetrying, "the pause is over: "+status.Message)
	}
}

// waiting has a job wait until it is admitted.
func (p *planner) waiting(status *aiplatformv1alpha1.AIJobStatus) {
	if _, asked := p.job.Annotations[aiplatformv1alpha1.AnnotationRequeue]; asked && status.Reason == aiplatformv1alpha1.ReasonRequeued {
		p.desired.requeued = true // nothing else comes before it: the reason is the record that the job was requeued
		p.stopLive(status)
		return
	}
	quiet := p.stopLive(status)
	switch held := len(p.job.Status.Assignments) > 0; {
	case held || !quiet: // its place must be free before it gets another
	case p.decided && p.decision.Admitted != nil:
		p.admit(status)
		return
	case p.decided && p.decision.Wait != nil:
		if p.mayTellLater(p.decision.Wait.Reason) {
			p.tellLater(p.now.Add(farInterval))
			return
		}
		p.wait(status)
		return
	}
	if status.Phase == aiplatformv1alpha1.AIJobQueued {
		return
	}
	if due := p.seen.Add(firstDecision); p.now.Before(due) {
		p.tellLater(due)
		return
	}
	if p.mayTellLater(aiplatformv1alpha1.ReasonQueued) {
		p.tellLater(p.now.Add(farInterval))
		return
	}
	p.queue(status, aiplatformv1alpha1.ReasonQueued, "the job waits for the first decision on it")
}

// mayTellLater says whether a manager that has no time for it leaves a new job Pending: it will have its place in time, and nobody need
// do anything.
func (p *planner) mayTellLater(reason string) bool {
	if !p.busy || p.spare || !isNew(p.job) {
		return false
	}
	switch reason {
	case aiplatformv1alpha1.ReasonQueued, aiplatformv1alpha1.ReasonQuotaReached, aiplatformv1alpha1.ReasonInsufficientCapacity,
		aiplatformv1alpha1.ReasonWaitingForPreemption, aiplatformv1alpha1.ReasonWaitingBehindGang:
		return true
	}
	return false
}

// tellLater leaves the status as it is until then.
func (p *planner) tellLater(due time.Time) {
	p.desired.status = *p.job.Status.DeepCopy()
	p.lookAgainAt(due)
}

// active brings a job further that has its place.
func (p *planner) active(status *aiplatformv1alpha1.AIJobStatus) {
	members := p.members()
	p.count(status, members)
	total := int(membersOf(p.job))
	switch {
	case status.Members.Succeeded == int32(total):
		p.succeed(status, members)
		return
	case p.decided && p.decision.Preempted != nil:
		p.preempt(status)
		return
	}
	if wait := causeMayFollow(p.now, members); wait > 0 {
		p.lookAgain(wait)
		return
	}
	if found := p.trouble(status, members); found != nil {
		p.fail(status, found, members)
		return
	}
	if status.Phase == aiplatformv1alpha1.AIJobScheduled && status.Members.Active+status.Members.Succeeded == int32(total) {
		if due := p.told.Add(shortRun); p.mayEndUntold() && p.now.Before(due) {
			p.lookAgainAt(due)
			return
		}
		p.run(status)
		return
	}
	if status.Phase == aiplatformv1alpha1.AIJobScheduled {
		p.create(members)
	}
}

// mayEndUntold says whether it makes no difference for a while that the job is not told to be Running: its time is not limited, and there
// is no gang whose members must run together.
func (p *planner) mayEndUntold() bool {
	return p.busy && p.job.Spec.TimeoutSeconds == nil && !isGang(p.job)
}

// members are the pods of the present try, by index; nil where there is none.
func (p *planner) members() []*corev1.Pod {
	members := make([]*corev1.Pod, membersOf(p.job))
	attempt := attemptOf(&p.job.Status)
	for _, pod := range p.pods {
		member, ok := memberOf(pod)
		of, known := number(pod, aiplatformv1alpha1.LabelAttempt)
		if ok && known && of == attempt && int(member) < len(members) {
			members[member] = pod
		}
	}
	return members
}

// trouble is what ends the try; nil when nothing does.
func (p *planner) trouble(status *aiplatformv1alpha1.AIJobStatus, members []*corev1.Pod) *failure {
	if found := findFailure(members); found != nil {
		return found
	}
	if status.Phase == aiplatformv1alpha1.AIJobRunning {
		if message := p.gone(members, int(status.Members.Cleared)); message != "" {
			return lossOf(aiplatformv1alpha1.ReasonPodDeleted, message)
		}
		return p.overtime(status)
	}
	since := timeOf(status.ScheduledTime, p.now)
	var told *obstacle
	for _, pod := range members {
		if pod != nil && started(pod) {
			continue
		}
		var found obstacle
		if pod == nil {
			found = p.missing(since)
		} else {
			found = obstacleOf(pod, since)
		}
		if !p.now.Before(found.due) {
			return found.end
		}
		p.lookAgainAt(found.due)
		if told == nil && found.now != "" {
			told = &found
		}
	}
	p.hindered(status, told)
	return nil
}

// gone says which pods are gone besides those that had succeeded and were cleared away; empty when none is.
func (p *planner) gone(members []*corev1.Pod, cleared int) string {
	var names []string
	for member, pod := range members {
		if pod == nil {
			names = append(names, nameOf(p.job, int32(member)))
		}
	}
	switch {
	case len(names) <= cleared:
		return ""
	case cleared > 0: // which of them these were is not known
		return fmt.Sprintf("%d pods are gone, of which %d had succeeded", len(names), cleared)
	}
	return "pod " + names[0] + " is gone"
}

// create makes the pods that are missing, all at once, and deletes those of tries before the last, whose logs nobody needs.
func (p *planner) create(members []*corev1.Pod) {
	nodes := placementOf(&p.job.Status)
	for member, pod := range members {
		if pod == nil && member < len(nodes) {
			p.desired.members = append(p.desired.members, placed{int32(member), nodes[member]})
		}
	}
	if len(p.desired.members) == 0 {
		return
	}
	p.desired.service = isGang(p.job) && !p.service
	for _, pod := range p.pods {
		if of, ok := number(pod, aiplatformv1alpha1.LabelAttempt); ok && of+1 < attemptOf(&p.job.Status) && pod.DeletionTimestamp == nil {
			p.desired.prune = append(p.desired.prune, pod)
		}
	}
}

func at(now time.Time) *metav1.Time { return ptr.To(metav1.NewTime(now).Rfc3339Copy()) }
