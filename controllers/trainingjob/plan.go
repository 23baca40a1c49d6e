package trainingjob

import (
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/gang"
	"github.com/dcnlab/spot-training-operator/internal/child"
	"github.com/dcnlab/spot-training-operator/internal/claims"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
	"github.com/dcnlab/spot-training-operator/internal/source"
)

// retryRefused is when to try again what the API server refused, or the object of another owner prevented.
const retryRefused = 5 * time.Second

// desired is what should be.
type desired struct {
	// apply are the children that should exist, those first that the pods wait for.
	apply []client.Object
	// expelled are pods to be deleted before all else, with the grace period in seconds that is left to each.
	expelled map[*corev1.Pod]int64
	// dead are pods to be reported as failed and deleted: no kubelet does so, and their Job replaces only pods that have failed.
	dead []*corev1.Pod
	// outlived are pods whose worker has ended and other containers have not.
	outlived []podend.Outlived
	// label are pods that lack the label with the number of their replica.
	label []*corev1.Pod
	// amend is the Job that Kueue holds as it should be, with the version that was read.
	amend *batchv1.Job
	// delete are children that should go.
	delete []client.Object
	// deleteSelf ends the TrainingJob, its TTL being over.
	deleteSelf bool
	// scrape is the URL of replica 0's metrics; empty when there is nothing to read.
	scrape string
	// network is the URL of replica 0's check of the network; empty when there is none to ask.
	network string
	// agent is the URL of replica 0's checkpoint agent; empty when there is none to ask.
	agent string
	// ask is the id of the checkpoint that the agent is to be asked for; empty for none.
	ask string
	// urgent is the id of a checkpoint that is needed before a node goes; it is asked for before any other.
	urgent string
	// status is what the next status says.
	status mlv1.TrainingJobStatus
	// more says that the plan is the first part of what is to be done: the rest, and the report, follow at once.
	more bool
	// again is when to look again even if nothing happens; 0 for never.
	again time.Duration
}

// planner makes one plan.
type planner struct {
	observed
	desired
}

// plan decides everything. It is a pure function of what was observed.
func plan(o observed) desired {
	p := newPlanner(o)
	if p.takeOver() {
		return p.desired
	}
	p.endOutlived()
	if isFinished(&p.status) {
		p.planFinished()
		p.followAgent()
		p.followRequest()
		p.agent, p.ask = "", ""
		return p.desired
	}
	if o.workers != nil { // that they were started is in the status before they are ever replaced
		p.status.StartCount = max(p.status.StartCount, build.StartOf(o.workers)+1)
	}
	suspend := ptr.Deref(o.job.Spec.Suspend, false) && !p.isDone() // before it could be stopped
	if !suspend && !p.isEvicted() && !p.isOutdated() {
		p.setResumed()
	}
	if reason, message := p.findObstacle(); reason != "" && o.workers == nil && !suspend {
		p.setPending(reason, message)
		p.status.Admission = nil
		p.followRequest()
		return p.desired
	}
	p.settle()
	p.setAdmission()
	if build.SpotName(o.job) != "" {
		available, reason, message := p.spotCapacity()
		p.condition(reasons.ConditionSpotCapacity, available, reason, message)
	}
	p.readFigures()
	p.followAgent()
	p.judgeSuccess()
	switch {
	case suspend:
		p.planSuspended()
	case p.planAdmission():
	case p.planEnd():
	case o.workers == nil:
		p.planStart()
	default:
		p.planAttempt()
	}
	p.followRequest()
	if isFinished(&p.status) || suspend {
		p.releaseGang()
	}
	if deadline := p.deadlineOf(); deadline != nil && !isFinished(&p.status) && o.now.Before(*deadline) {
		p.lookAgain(deadline.Sub(o.now))
	}
	return p.desired
}

func newPlanner(o observed) *planner {
	p := &planner{observed: o, desired: desired{status: *o.job.Status.DeepCopy(), expelled: map[*corev1.Pod]int64{}}}
	p.status.ObservedGeneration = o.job.Generation
	return p
}

// findObstacle names what keeps the job from being started; empty when nothing does.
func (o *observed) findObstacle() (reason, message string) {
	if problem := build.FrameworkProblem(o.job); problem != nil {
		return reasons.FrameworkNotSupported, problem.Error()
	}
	if from := build.ResumeFrom(o.job); strings.HasPrefix(from, "/") && !build.CheckpointsEnabled(o.job) || from == build.ResumeLatest && !build.CheckpointsEnabled(o.job) {
		return reasons.StorageNotSupported,
			"spec.checkpoint.resumeFrom: needs the job's own storage, but spec.checkpoint.enabled is false: enable it or write a URI such as pvc://claim/path"
	}
	if name := build.ResumeJob(o.job); name != "" && o.resume == nil {
		return reasons.ResumeSourceNotFound, fmt.Sprintf(
			"spec.checkpoint.resumeFrom: there is no TrainingJob %s with a checkpoint in namespace %s: create it and wait for its first, or correct the name", name, o.job.Namespace)
	}
	if field, message := build.SpecProblem(o.job); message != "" {
		return reasons.InvalidSpec, field + ": " + message
	}
	if o.missingClaim != "" {
		return reasons.ClaimNotFound, claims.NotFound(o.job.Namespace, o.missingClaim, build.ClaimField(o.job, o.missingClaim))
	}
	switch local, queue := build.LocalQueue(o.job), build.QueueName(o.job); {
	case local != "" && queue != "":
		return reasons.InvalidSpec, fmt.Sprintf("spec.scheduling.queueName: names AIJobQueue %s, but the label %s names LocalQueue %s of Kueue "+
			"as well: create the job with only one of the two", queue, build.KueueQueueLabel, local)
	case local == "" && queue == "" && o.settings.RequireQueue && o.job.Status.StartTime == nil && o.job.Status.StartCount == 0: // those that have started go on
		return reasons.QueueRequired, "spec.scheduling.queueName: is not set, and the operator starts no job without a queue: " +
			"name an AIJobQueue"
	case local != "" && !o.kueue && o.workers == nil:
		return reasons.KueueNotServed, fmt.Sprintf(
			"the label %s names LocalQueue %s, but the cluster does not serve %s: install Kueue, or remove the label",
			build.KueueQueueLabel, local, kueueWorkload)
	case o.gang.named && o.gang.version == "":
		return reasons.GangNotServed, gang.NotServed(o.gang.scheduler)
	}
	return "", ""
}

// afterApply is the plan with the result of its writes: what could not be written is told, and keeps a job that does not run from starting.
func afterApply(o observed, d desired, failed error) desired {
	problem := child.ProblemOf(failed)
	switch starts := len(d.apply) > 0 && d.status.State != mlv1.StateRunning; {
	case problem != nil && starts:
		d = refused(o, problem.Reason, problem.Message, problem.Reason == reasons.InvalidSpec)
	case problem != nil:
		d.lookAgain(retryRefused)
	case failed != nil && d.more && o.job.Status.State != mlv1.StateRestarting: // an object of an earlier job of the name is in the way
		p := planner{observed: o, desired: d}
		p.setInitializing(reasons.WorkersStarting, failed.Error())
		d = p.desired
	}
	if !isFinished(&d.status) || isFinished(&o.job.Status) {
		reporting.SetChildrenApplied(&d.status.Conditions, o.job.Generation, o.now, failed)
	}
	return d
}

// refused is the plan after the API server refused an object: the job waits with the reason in its status or, when its
// spec can never be met, fails.
func refused(o observed, reason, message string, permanent bool) desired {
	p := newPlanner(o)
	p.setResumed()
	found := &delay{eviction{reason, message, true}, o.refusedSince()}
	switch {
	case permanent:
		p.fail(reason, message)
		return p.desired
	case p.mayEvict() && p.isOver(found):
		p.evict(&found.eviction)
	case o.workers == nil:
		p.setPending(reason, message)
	default:
		p.setInitializing(reason, message)
	}
	p.lookAgain(retryRefused)
	return p.desired
}

// refusedSince is when the first of the writes failed that have failed in a row.
func (o *observed) refusedSince() time.Time {
	told := meta.FindStatusCondition(o.job.Status.Conditions, reasons.ConditionChildrenApplied)
	if told == nil || told.Status != metav1.ConditionFalse {
		return o.now
	}
	return told.LastTransitionTime.Time
}

// planStart makes the children, once no worker of an earlier attempt runs any more and the backoff is over.
func (p *planner) planStart() {
	if p.status.State == mlv1.StateRunning {
		lost := failure{End: workerProgram.LossOf(reasons.JobDeleted, "Job "+build.WorkersName(p.job), "")}
		p.recordFailure(lost)
		p.restart(lost)
		return
	}
	if wait := p.lingeringTime(); wait > 0 {
		if p.status.State != mlv1.StateRestarting {
			p.setInitializing(reasons.WorkersStarting, "pods of earlier workers are ending")
		}
		p.lookAgain(wait)
		return
	}
	if p.status.State == mlv1.StateRestarting && p.status.LastRestartTime != nil {
		if wait := p.status.LastRestartTime.Add(backoff(p.job)).Sub(p.now); wait > 0 {
			p.lookAgain(wait)
			return
		}
	}
	if !equality.Semantic.DeepEqual(p.status.DefaultResources, p.job.Status.DefaultResources) { // the workers are made from what is written
		p.setInitializing(reasons.WorkersStarting, "the workers are being started")
		p.lookAgain(time.Millisecond)
		return
	}
	if p.gang.version != "" { // the pods' scheduler needs it before them
		p.apply = append(p.apply, gang.FullGroup(p.job, p.gang.scheduler, p.gang.version, p.gangSize()))
	}
	p.apply = append(p.apply, p.wanted(true)...)
	p.more = true
}

// lingeringTime is how long to wait at most for pods of an earlier attempt; 0 when none runs. They must be gone before
// others start, because these would take their host names and read the checkpoints that they still write. The garbage
// collector deletes them with their Job; pods that were orphaned, and those whose kubelet no longer ends them, are deleted here.
func (p *planner) lingeringTime() time.Duration {
	for _, pod := range podend.ToForce(p.now, p.pods) {
		p.expelled[pod] = 0
	}
	var wait time.Duration
	for _, pod := range p.pods {
		if podend.IsEnded(pod) {
			continue
		}
		limit := time.Duration(build.GracePeriod(p.job))*time.Second + podend.Overdue
		if left, ends := podend.OverdueIn(p.now, pod); ends {
			limit = left
		} else if metav1.GetControllerOf(pod) == nil {
			p.remove(pod)
		}
		wait = max(wait, limit)
	}
	return wait
}

// planAttempt follows the workers that exist.
func (p *planner) planAttempt() {
	pods := sinceAdmission(p.workers, p.workerPods())
	otherCode := p.followSource(pods)
	switch {
	case p.workers.DeletionTimestamp != nil:
		return // its end brings us back
	case p.isOutdated():
		p.planEdited()
		return
	case build.AttemptOf(p.workers) < p.status.RestartCount:
		p.shortenGrace()
		p.remove(p.workers)
		return
	case isHeldByKueue(p.workers):
		p.planHeldByKueue()
		return
	case otherCode != nil:
		p.planFailure(*otherCode)
		return
	case hasSucceeded(p.workers, pods):
		p.complete()
		return
	case isResizable(p.workers) && p.job.Spec.Elastic != nil:
		p.planElastic(pods)
		return
	}
	if found := findFailure(p.workers, pods, plainSecrets(p.job)...); found != nil {
		if found = p.blame(found, pods); found != nil {
			p.planFailure(*found)
		}
		return
	}
	if p.leaveTogether(pods) {
		return
	}
	if size := ptr.Deref(p.workers.Spec.Completions, 0); size != p.job.Spec.NumWorkers {
		p.restart(failure{End: podend.End{Reason: reasons.Rescaled, Lost: true, Message: fmt.Sprintf(
			"spec.numWorkers changed from %d to %d", size, p.job.Spec.NumWorkers)}})
		return
	}
	p.serve(pods)
	p.followNetwork(pods)
	p.status.Workers.Active, p.status.Workers.Succeeded = countWorkers(pods)
	p.status.Workers.Failed = 0 // those that are known failed in an earlier attempt
	if p.status.Workers.Active+p.status.Workers.Succeeded >= p.status.Workers.Total {
		p.setRunning(reasons.WorkersRunning, fmt.Sprintf("all %d workers run", p.status.Workers.Total))
	} else if p.status.State != mlv1.StateRunning {
		p.setInitializing(p.describeWaiting(pods))
	}
}

// isOutdated says whether the workers were made from a spec that was edited before the status told that they exist: until then an edit is
// allowed. Kueue lets a Job go without asking the operator, so that pods of an earlier spec may run then; the status does not tell that they
// do until the Job is known to be of the spec, and it is written with the version of the spec that was read.
func (o *observed) isOutdated() bool {
	is := o.job.Status.State
	editable := is == mlv1.StatePending || is == mlv1.StateSuspended || is == mlv1.StateRestarting && source.IsTemporary(o.job.Status.Reason)
	return editable && o.workers != nil && !build.IsOf(o.workers, o.job)
}

// blame explains a failure by what is known beside the pods that failed; nil while its cause may still follow.
func (p *planner) blame(found *failure, pods []*corev1.Pod) *failure {
	found = p.blameNotice(p.blameStorage(p.blameNode(found)))
	if wait := p.causeMayFollow(pods); wait > 0 && !found.Lost {
		p.lookAgain(wait)
		return nil
	}
	if found.Reason == reasons.PeerLost {
		found.silent = podend.Boots(workerProgram.Silent(pods), p.nodes)
	}
	return found
}

// serve keeps what workers need that go on.
func (p *planner) serve(pods []*corev1.Pod) {
	p.apply, p.scrape = p.wanted(false), metricsURL(p.job, pods)
	for _, pod := range pods {
		if index := replicaOf(pod); index != "" && pod.Labels[mlv1.LabelReplicaID] != index && pod.DeletionTimestamp == nil {
			p.label = append(p.label, pod)
		}
	}
}

func (p *planner) planFailure(found failure) {
	if p.leaveForSource(&found) {
		return
	}
	judged := judge(&mlv1.TrainingJob{Spec: p.job.Spec, Status: p.status}, found)
	if !judged.restart && p.mustSettle(found, judged) {
		return
	}
	p.recordFailure(found)
	if judged.restart {
		p.restart(found)
		return
	}
	p.status.Workers.Failed = countFailed(p.workerPods())
	p.fail(judged.reason, judged.message)
}

// planSuspended stops the workers.
func (p *planner) planSuspended() {
	if !p.stopWorkers() {
		p.setStopping()
		return
	}
	p.status.Admission = nil // its resources are for other jobs
	p.setSuspendedFor(reasons.Suspended, "spec.suspend is true; no worker runs")
}

// planFinished deletes what the clean-up policy says, and the job itself when its time to live is over.
func (p *planner) planFinished() {
	if ttl := p.job.Spec.TTLSecondsAfterFinished; ttl != nil && p.status.CompletionTime != nil {
		left := p.status.CompletionTime.Add(time.Duration(*ttl) * time.Second).Sub(p.now)
		if left <= 0 {
			p.deleteSelf = true
			return
		}
		p.lookAgain(left)
	}
	p.deleteHeldJob()
	switch p.job.Spec.CleanupPolicy {
	case mlv1.CleanupAll:
		p.cleanUp()
	case mlv1.CleanupRunning:
		// No pod of a Job that is complete runs; one that seems to is only behind in the cache.
		if p.workers != nil && jobComplete(p.workers) {
			return
		}
		for _, pod := range p.workerPods() {
			if pod.DeletionTimestamp == nil && !podend.IsEnded(pod) {
				p.remove(pod)
			}
		}
	}
}

// deadlineOf is the end of activeDeadlineSeconds; nil when there is none or the job has not started. Like a Job's, it
// begins again when the job is resumed.
func (p *planner) deadlineOf() *time.Time {
	seconds := p.job.Spec.FailurePolicy.ActiveDeadlineSeconds
	if seconds == nil || p.status.StartTime == nil || ptr.Deref(p.job.Spec.Suspend, false) || p.isEvicted() {
		return nil
	}
	start := p.status.StartTime.Time
	if resumed := resumedAt(&p.status); resumed.After(start) {
		start = resumed
	}
	deadline := start.Add(time.Duration(*seconds) * time.Second)
	return &deadline
}

// jobComplete says whether the Job controller has found every worker ended with exit code 0.
func jobComplete(workers *batchv1.Job) bool {
	return isTrue(jobCondition(workers, batchv1.JobComplete))
}

// jobCondition is a condition of a Job; nil when it has none of the type.
func jobCondition(workers *batchv1.Job, kind batchv1.JobConditionType) *batchv1.JobCondition {
	at := slices.IndexFunc(workers.Status.Conditions, func(condition batchv1.JobCondition) bool { return condition.Type == kind })
	if at < 0 {
		return nil
	}
	return &workers.Status.Conditions[at]
}

func isTrue(condition *batchv1.JobCondition) bool {
	return condition != nil && condition.Status == corev1.ConditionTrue
}

// isDone says whether the workers have succeeded, so that there is nothing left to stop or to start again.
func (o *observed) isDone() bool {
	return o.workers != nil && o.workers.DeletionTimestamp == nil && hasSucceeded(o.workers, o.workerPods())
}

// hasSucceeded says whether every worker ended with exit code 0. The pods tell before the Job controller does, which
// gathers their ends for a second, and which does not wait for the sidecars of pods that were outlived.
func hasSucceeded(workers *batchv1.Job, pods []*corev1.Pod) bool {
	if jobComplete(workers) {
		return !slices.ContainsFunc(pods, podend.IsBeingEnded)
	}
	return areDone(workers, pods, func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodSucceeded })
}

// areDone says whether as many of the replicas have a pod that is done as the training needs.
func areDone(workers *batchv1.Job, pods []*corev1.Pod, isDone func(*corev1.Pod) bool) bool {
	done := map[string]bool{}
	for _, pod := range pods {
		if isDone(pod) {
			done[replicaOf(pod)] = true
		}
	}
	if isResizable(workers) { // one that was lost at the very end need not come back
		return done["0"]
	}
	return len(done) == int(ptr.Deref(workers.Spec.Completions, 0))
}

func countWorkers(pods []*corev1.Pod) (active, succeeded int32) {
	for _, pod := range pods {
		switch {
		case pod.Status.Phase == corev1.PodSucceeded:
			succeeded++
		case pod.Status.Phase == corev1.PodRunning && isReady(pod):
			active++
		}
	}
	return active, succeeded
}

func countFailed(pods []*corev1.Pod) int32 {
	return int32(len(only(pods, func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodFailed })))
}

// isReady says whether the training of a pod runs, whatever becomes of its sidecars.
func isReady(pod *corev1.Pod) bool {
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name == build.WorkerContainer && status.Ready {
			return true
		}
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// hasWorkers says whether the workers are among what should exist.
func (d *desired) hasWorkers() bool {
	return slices.ContainsFunc(d.apply, func(object client.Object) bool {
		_, is := object.(*batchv1.Job)
		return is
	})
}

// remove deletes an object. The Job of the workers stays until its start is counted in the status: a manager that is killed in between would
// give the number to the next one too.
func (p *planner) remove(object client.Object) {
	if p.workers != nil && object == client.Object(p.workers) && !isFinished(&p.job.Status) && p.job.Status.StartCount <= build.StartOf(p.workers) {
		p.lookAgain(time.Millisecond)
		return
	}
	p.delete = append(p.delete, object)
}

// lookAgain asks for another look after the time, or before when another asked for less.
func (d *desired) lookAgain(after time.Duration) {
	d.again = reconciling.Sooner(d.again, after)
}
