package aijob

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/claims"
	"github.com/dcnlab/spot-training-operator/internal/podbuild"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/internal/queueing"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
	"github.com/dcnlab/spot-training-operator/internal/workerdefaults"
)

// observed is all that a plan is made from.
type observed struct {
	now time.Time
	job *aiplatformv1alpha1.AIJob
	// pods of all attempts of this job, those that are being deleted too.
	pods []*corev1.Pod
	// missingServices are those that the pods are to be found by and that do not exist.
	missingServices []*corev1.Service
	// claims of a job that has a place, and the name of one that does not exist.
	claims       []claims.Claim
	missingClaim string
	// decision of admission; decided is false when there is none yet.
	decision queueing.Decision
	decided  bool
	// written is when this manager last wrote the status; zero when that is not known.
	written time.Time
	// busy says that this manager writes the statuses of many jobs; spare, that there is time for one that could wait.
	busy, spare bool
	// nodes of pods that reported no end, and of failures that are not settled, by name; nil for one that is gone.
	nodes map[string]*corev1.Node
	// former are pods that have not ended of an earlier AIJob of the name.
	former []*corev1.Pod
	// hidden says that some of the pods are not in the cache, which reports no change of theirs.
	hidden bool
	// seen is when this manager first saw the job.
	seen time.Time
	// defaultResources are those of the installation.
	defaultResources workerdefaults.Defaults
	// peersLost is when pods were first seen to have ended that lost another.
	peersLost map[types.UID]time.Time
}

// desired is what a plan wants. When the status changes in more than figures, that is written first and a new plan made from it:
// the status is the only record of what was decided, and what is done follows from it alone.
type desired struct {
	status aiplatformv1alpha1.AIJobStatus
	// stop are pods to stop with their grace period, prune pods of earlier attempts that have ended, force pods to delete without a grace
	// period because their kubelet is gone.
	stop, prune, force []*corev1.Pod
	// outlived are pods whose program has ended and other containers have not.
	outlived []podend.Outlived
	// members whose pods are to be created, each on its node, after the services.
	members  []assignedMember
	services []*corev1.Service
	// requeued removes the annotation by which a user requeued the job, now that it is queued.
	requeued bool
	// remove deletes the job: ttlSecondsAfterFinished has passed.
	remove bool
	// again is when to reconcile again if nothing happens; 0 for never.
	again time.Duration
}

// assignedMember is a member and its node.
type assignedMember struct {
	index int32
	node  string
}

const (
	// firstDecision is how long a new job waits for a decision before its status says that it waits.
	firstDecision = time.Second
	// figuresInterval and farInterval are how often figures alone are written: the counts of members, the position in the queue and
	// what the job waits for. Of thousands of waiting jobs only the first are updated often; a busy manager updates none.
	figuresInterval, farInterval = 5 * time.Second, time.Minute
	// shortRun is how soon after their admission jobs may end that a busy manager never reports as Running.
	shortRun = 10 * time.Second
	// hiddenInterval is how often pods are read that the cache does not have.
	hiddenInterval = 10 * time.Second
	// near is the last position in the queue that is updated often.
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
	if p.takeOver(status) || p.settle(status) {
		p.desired = desired{status: p.desired.status}
		return p.desired
	}
	switch {
	case status.Phase.Ended():
		p.afterTheEnd(status)
	case o.job.DeletionTimestamp != nil: // finalizers may keep it for long, and until it is gone nothing else stops its pods
		p.finish(status, aiplatformv1alpha1.AIJobCancelled, reasons.Cancelled, "the AIJob is being deleted")
	case ptr.Deref(o.job.Spec.Cancel, false):
		p.finish(status, aiplatformv1alpha1.AIJobCancelled, reasons.Cancelled, "spec.cancel is true")
	case status.Phase == aiplatformv1alpha1.AIJobScheduled || status.Phase == aiplatformv1alpha1.AIJobRunning:
		p.active(status)
	case p.isInvalid(status):
	case status.Phase == aiplatformv1alpha1.AIJobRetrying:
		p.retrying(status)
	default:
		p.waiting(status)
	}
	if isChanged(&o.job.Status, status) {
		p.desired = desired{status: p.desired.status}
		return p.desired
	}
	p.holdBackFigures(status)
	p.forceOverdue()
	if p.desired.outlived = podend.OutlivedOf(o.pods, corev1.RestartPolicyNever, container); len(p.desired.outlived) > 0 {
		p.lookAgain(podend.LookAgain)
	}
	if o.hidden {
		p.lookAgain(hiddenInterval)
	}
	return p.desired
}

// isInvalid has a job wait whose settings do not go together until they are corrected.
func (p *planner) isInvalid(status *aiplatformv1alpha1.AIJobStatus) bool {
	field, message := podbuild.Conflict(&p.job.Spec.Settings, p.job.Spec.Source, p.job.Spec.Resources, 0)
	if field == "" {
		return false
	}
	p.stopLive(status)
	p.queueAgain(status, reasons.InvalidSpec, field+": "+message)
	return true
}

// lookAgain has the job reconciled again after that time at the latest.
func (p *planner) lookAgain(after time.Duration) {
	p.desired.again = reconciling.Sooner(p.desired.again, after)
}

// lookAgainAt is lookAgain at a time.
func (p *planner) lookAgainAt(at time.Time) { p.lookAgain(at.Sub(p.now)) }

// live are the pods that have not ended and whose kubelet still answers for them.
func (p *planner) live() []*corev1.Pod {
	var list []*corev1.Pod
	for _, pod := range p.pods {
		if !podend.IsEnded(pod) && !p.isOverdue(pod) {
			list = append(list, pod)
		}
	}
	return list
}

// stopLive stops the pods that still run, and says whether none does.
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
	if p.job.DeletionTimestamp != nil {
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

// retrying waits for the end of the pause, and of the pods of the last attempt.
func (p *planner) retrying(status *aiplatformv1alpha1.AIJobStatus) {
	quiet := p.stopLive(status)
	if due := timeOf(status.NextRetryTime, p.now); p.now.Before(due) {
		p.lookAgainAt(due)
	} else if quiet {
		since := status.QueuedTime
		p.queue(status, reasons.Retrying, "the pause is over: "+status.Message)
		if status.StartTime == nil { // it had a place, but never ran in it
			status.QueuedTime = since
		}
	}
}

// waiting has a job wait until it is admitted.
func (p *planner) waiting(status *aiplatformv1alpha1.AIJobStatus) {
	if _, asked := p.job.Annotations[aiplatformv1alpha1.AnnotationRequeue]; asked && status.Reason == reasons.Requeued {
		p.desired.requeued = true // nothing else comes before it: the reason is the record that the job was requeued
		p.stopLive(status)
		return
	}
	quiet := p.stopLive(status)
	switch held := len(p.job.Status.Assignments) > 0; {
	case held || !quiet: // its nodes must be free before it is admitted again
	case p.decided && p.decision.Admitted != nil && !p.decision.Admitted.Of(p.job.Generation):
		p.lookAgain(queueing.StaleDecision)
		return
	case isHeldBack(status) || p.decided && p.decision.Admitted != nil:
		if !p.awaitsVolumes(status) {
			p.admit(status)
		}
		return
	case p.decided && p.decision.Wait != nil:
		if p.mayReportLater(p.decision.Wait.Reason) {
			p.postpone(p.now.Add(farInterval))
			return
		}
		p.wait(status)
		return
	}
	if status.Phase == aiplatformv1alpha1.AIJobQueued {
		return
	}
	if due := p.seen.Add(firstDecision); p.now.Before(due) {
		p.postpone(due)
		return
	}
	if p.mayReportLater(reasons.Queued) {
		p.postpone(p.now.Add(farInterval))
		return
	}
	p.queue(status, reasons.Queued, "the job waits for the first decision on it")
}

// mayReportLater says whether a busy manager leaves a new job Pending: it will be admitted in time, and no user needs to do anything.
func (p *planner) mayReportLater(reason string) bool {
	if !p.busy || p.spare || !isNew(p.job) {
		return false
	}
	switch reason {
	case reasons.Queued, reasons.QuotaReached, reasons.InsufficientCapacity,
		reasons.WaitingForPreemption, reasons.WaitingBehindGang:
		return true
	}
	return false
}

// active continues a job that is admitted.
func (p *planner) active(status *aiplatformv1alpha1.AIJobStatus) {
	members := p.members()
	p.count(status, members)
	total := int(membersOf(p.job))
	otherCode := p.followSource(status, members)
	switch {
	case otherCode != nil:
		p.fail(status, otherCode, members)
		return
	case status.Members.Succeeded == int32(total):
		p.succeed(status, members)
		return
	case p.decided && p.decision.Preempted != nil:
		p.preempt(status)
		return
	}
	if wait := program.CauseMayFollow(p.now, podend.FailedOf(members), len(members), p.peersLost); wait > 0 {
		p.lookAgain(wait)
		return
	}
	if found := p.findProblem(status, members); found != nil {
		p.fail(status, p.blameNode(found, members), members)
		return
	}
	if status.Phase == aiplatformv1alpha1.AIJobScheduled && status.Members.Active+status.Members.Succeeded == int32(total) {
		if due := p.written.Add(shortRun); p.mayEndUnreported() && p.now.Before(due) {
			p.lookAgainAt(due)
			return
		}
		p.run(status)
		return
	}
	if status.Phase == aiplatformv1alpha1.AIJobScheduled {
		p.create(members)
		return
	}
	p.desired.services = p.missingServices
}

// mayEndUnreported says whether it makes no difference for a while that the job is not reported as Running: it has no deadline, and no
// gang whose members must run together.
func (p *planner) mayEndUnreported() bool {
	return p.busy && p.job.Spec.TimeoutSeconds == nil && !isGang(p.job)
}

// members are the pods of the current attempt, by index; nil where there is none.
func (o *observed) members() []*corev1.Pod {
	members := make([]*corev1.Pod, membersOf(o.job))
	attempt := attemptOf(&o.job.Status)
	for _, pod := range o.pods {
		member, ok := number(pod, aiplatformv1alpha1.LabelMember)
		of, known := number(pod, aiplatformv1alpha1.LabelAttempt)
		if ok && known && of == attempt && int(member) < len(members) {
			members[member] = pod
		}
	}
	return members
}

// findProblem is what ends the attempt; nil when nothing does.
func (p *planner) findProblem(status *aiplatformv1alpha1.AIJobStatus, members []*corev1.Pod) *failure {
	if found := findFailure(members); found != nil {
		return found
	}
	if status.Phase == aiplatformv1alpha1.AIJobRunning {
		if message := p.describeGone(members, int(status.Members.Cleared)); message != "" {
			return lossOf(reasons.PodDeleted, message)
		}
		return p.overtime(status)
	}
	since := timeOf(status.ScheduledTime, p.now)
	var first *delay
	for _, pod := range members {
		if pod != nil && isStarted(pod) {
			continue
		}
		var found delay
		if pod == nil {
			found = p.missingPod(since)
		} else {
			found = delayOf(pod, since)
		}
		if !p.now.Before(found.due) {
			return found.end
		}
		p.lookAgainAt(found.due)
		if first == nil && found.now != "" {
			first = &found
		}
	}
	p.describeStart(status, first)
	return nil
}

// describeGone names the pods that are gone, except for those that had succeeded and were cleared away; empty when there is none.
func (p *planner) describeGone(members []*corev1.Pod, cleared int) string {
	var names []string
	for member, pod := range members {
		if pod == nil {
			names = append(names, nameOf(p.job, int32(member)))
		}
	}
	switch {
	case len(names) <= cleared:
		return ""
	case cleared > 0: // it is not known which of them these were
		return fmt.Sprintf("%d pods are gone; only %d of them had succeeded", len(names), cleared)
	}
	return "pod " + names[0] + " is gone"
}

// create creates the missing pods, all at once, and deletes those of attempts before the last one.
func (p *planner) create(members []*corev1.Pod) {
	if p.awaitsFormer() {
		return
	}
	nodes := placementOf(&p.job.Status)
	for member, pod := range members {
		if pod == nil && member < len(nodes) {
			p.desired.members = append(p.desired.members, assignedMember{int32(member), nodes[member]})
		}
	}
	if len(p.desired.members) == 0 {
		return
	}
	p.desired.services = p.missingServices
	for _, pod := range p.pods {
		if of, ok := number(pod, aiplatformv1alpha1.LabelAttempt); ok && of+1 < attemptOf(&p.job.Status) && pod.DeletionTimestamp == nil {
			p.desired.prune = append(p.desired.prune, pod)
		}
	}
}

func at(now time.Time) *metav1.Time { return ptr.To(metav1.NewTime(now).Rfc3339Copy()) }
