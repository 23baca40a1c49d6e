package trainingjob

import (
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// overdue is how long after its grace period a pod is given up: the kubelet of its node no longer answers, and the
// training must not wait for it.
const overdue = 15 * time.Second

// retryRefused is when to try again what the API server or somebody else's object did not allow.
const retryRefused = 5 * time.Second

// desired is what should be.
type desired struct {
	// apply are the children that should exist, those first that the pods wait for.
	apply []client.Object
	// expelled are pods to be deleted before all else, with the grace period in seconds that is left to each.
	expelled map[*corev1.Pod]int64
	// label are pods with the labels that they should have.
	label map[*corev1.Pod]map[string]string
	// delete are children that should go.
	delete []client.Object
	// deleteSelf ends the TrainingJob, its TTL being over.
	deleteSelf bool
	// scrape is the URL of replica 0's metrics; empty when there is nothing to read.
	scrape string
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

// plan decides everything. It is a pure function of what was observed.
func plan(o observed) desired {
	d := desired{status: *o.job.Status.DeepCopy(), label: map[*corev1.Pod]map[string]string{}}
	d.status.ObservedGeneration = o.job.Generation
	if finished(&d.status) {
		planFinished(o, &d)
		followAgent(o, &d)
		followRequest(o, &d)
		d.agent, d.ask = "", ""
		return d
	}
	countStart(o, &d)
	suspend := ptr.Deref(o.job.Spec.Suspend, false)
	if !suspend && !evictedByQueue(o) {
		resumed(o, &d)
	}
	if reason, message := obstacle(o); reason != "" && o.workers == nil && !suspend {
		hold(o, &d, reason, message)
		d.status.Admission = nil
		followRequest(o, &d)
		return d
	}
	admit(o, &d)
	followSpot(o, &d)
	readFigures(o, &d)
	followAgent(o, &d)
	judgeSuccess(o, &d)
	switch {
	case suspend:
		planSuspended(o, &d)
	case planAdmission(o, &d):
	case planEnd(o, &d):
	case o.workers == nil:
		planStart(o, &d)
	default:
		planAttempt(o, &d)
	}
	followRequest(o, &d)
	if finished(&d.status) || suspend {
		releaseGang(o, &d)
	}
	if deadline := deadlineOf(o, &d); deadline != nil && !finished(&d.status) && o.now.Before(*deadline) {
		d.lookAgain(deadline.Sub(o.now))
	}
	return d
}

// obstacle names what keeps the job from being started; empty when nothing does.
func obstacle(o observed) (reason, message string) {
	if problem := frameworkProblem(o.job); problem != nil {
		return mlv1.ReasonFrameworkNotSupported, problem.Error()
	}
	if from := resumeSource(o.job); strings.HasPrefix(from, "/") && !checkpointsEnabled(o.job) || from == resumeLatest && !checkpointsEnabled(o.job) {
		return mlv1.ReasonStorageNotSupported,
			"spec.checkpoint.resumeFrom: needs the job's own storage, but spec.checkpoint.enabled is false: enable it or write a URI such as pvc://claim/path"
	}
	if name := resumeJob(o.job); name != "" && o.resume == nil {
		return mlv1.ReasonResumeSourceNotFound, fmt.Sprintf(
			"spec.checkpoint.resumeFrom: there is no TrainingJob %s with a checkpoint in namespace %s: create it and wait for its first, or correct the name", name, o.job.Namespace)
	}
	if field, message := misfitOfElastic(o.job); message != "" {
		return mlv1.ReasonInvalidSpec, field + ": " + message
	}
	if o.missingClaim != "" {
		return mlv1.ReasonClaimNotFound, fmt.Sprintf(
			"there is no PersistentVolumeClaim %s in namespace %s: create it, or correct spec.checkpoint", o.missingClaim, o.job.Namespace)
	}
	if reason, message := twoQueues(o.job); reason != "" {
		return reason, message
	}
	if reason, message := queueObstacle(o); reason != "" {
		return reason, message
	}
	return gangObstacle(o)
}

func resumeSource(job *mlv1.TrainingJob) string {
	if job.Spec.Checkpoint == nil {
		return ""
	}
	return job.Spec.Checkpoint.ResumeFrom
}

// refused is the plan after the API server refused an object: the job waits with the reason in its status or, when its
// spec can never be met, fails.
func refused(o observed, reason, message string, permanent bool) desired {
	d := desired{status: *o.job.Status.DeepCopy()}
	d.status.ObservedGeneration = o.job.Generation
	resumed(o, &d)
	if permanent {
		fail(o, &d, reason, message)
		return d
	}
	if o.workers == nil {
		hold(o, &d, reason, message)
	} else {
		initializing(o, &d, reason, message)
	}
	d.lookAgain(retryRefused)
	return d
}

// planStart makes the children, once no worker of an earlier attempt runs any more and the backoff is over.
func planStart(o observed, d *desired) {
	if d.status.State == mlv1.StateRunning {
		lost := failure{reason: mlv1.ReasonJobDeleted, disrupted: true, message: "the Job " + workersName(o.job) + " was deleted"}
		d.status.LastFailure = lost.status(o.now)
		restart(o, d, lost)
		return
	}
	if wait := lingering(o, d); wait > 0 {
		if d.status.State != mlv1.StateRestarting {
			initializing(o, d, mlv1.ReasonWorkersStarting, "pods of earlier workers are ending")
		}
		d.lookAgain(wait)
		return
	}
	if d.status.State == mlv1.StateRestarting && d.status.LastRestartTime != nil {
		if wait := d.status.LastRestartTime.Add(backoff(o.job)).Sub(o.now); wait > 0 {
			d.lookAgain(wait)
			return
		}
	}
	d.apply = append(gangObjects(o), firstChildren(o, d.status.RestartCount)...)
	d.more = true
}

// firstChildren are what the pods of an attempt wait for: in a burst of new jobs these are made for all jobs before
// the rest is made for any.
func firstChildren(o observed, attempt int32) []client.Object {
	var list []client.Object
	if o.job.Spec.ServiceAccountName == "" {
		list = append(list, buildServiceAccount(o.job))
	}
	if createsClaim(o.job) {
		list = append(list, buildClaim(o.job))
	}
	if isolated(o.job, o.settings) {
		list = append(list, buildPolicy(o.job, o.settings))
	}
	workers := buildWorkers(resolved(o.job, o.resume), o.settings, attempt)
	joinGang(o, workers)
	joinQueue(o, workers)
	return append(list, workers)
}

// children are all objects of the job.
func children(o observed, attempt int32) []client.Object {
	list := append(firstChildren(o, attempt), buildConfig(o.job), buildHeadless(o.job), buildMaster(o.job))
	if tensorBoardEnabled(o.job) {
		list = append(list, buildTensorBoard(o.job))
	}
	return list
}

// lingering is how long to wait at the most for pods of an earlier attempt; 0 when none runs. They must be gone before
// others start, because these would take their host names and read the checkpoints that they still write. The garbage
// collector deletes them with their Job; pods that were orphaned are deleted here.
func lingering(o observed, d *desired) time.Duration {
	var wait time.Duration
	for _, pod := range o.pods {
		if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
			continue
		}
		limit := time.Duration(gracePeriod(o.job))*time.Second + overdue
		if pod.DeletionTimestamp != nil { // which is when it should be gone
			limit = pod.DeletionTimestamp.Add(overdue).Sub(o.now)
		} else if metav1.GetControllerOf(pod) == nil {
			d.remove(pod)
		}
		wait = max(wait, limit)
	}
	return wait
}

// planAttempt follows the workers that exist.
func planAttempt(o observed, d *desired) {
	pods := sinceAdmission(o.workers, o.podsOf(o.workers.UID))
	switch {
	case o.workers.DeletionTimestamp != nil:
		return // its end brings us back
	case attemptOf(o.workers) < d.status.RestartCount:
		hurry(o, d)
		d.remove(o.workers)
		return
	case heldByQueue(o.workers):
		planQueued(o, d)
		return
	case succeeded(o.workers, pods):
		complete(o, d)
		return
	case resizable(o.workers) && o.job.Spec.Elastic != nil:
		planElastic(o, d, pods)
		return
	}
	if found := findFailure(o.workers, pods); found != nil {
		found = blameNotice(o, blameStorage(o, blameNode(o, o.workers, found)))
		if wait := causeMayFollow(o.now, pods); wait > 0 && !found.disrupted {
			d.lookAgain(wait)
			return
		}
		planFailure(o, d, *found)
		return
	}
	if leaveTogether(o, d, pods) {
		return
	}
	if size := ptr.Deref(o.workers.Spec.Completions, 0); size != o.job.Spec.NumWorkers {
		restart(o, d, failure{reason: mlv1.ReasonRescaled, disrupted: true, message: fmt.Sprintf(
			"spec.numWorkers changed from %d to %d", size, o.job.Spec.NumWorkers)})
		return
	}
	d.apply = children(o, attemptOf(o.workers))
	for _, pod := range pods {
		if with := replicaLabels(pod); with != nil && pod.DeletionTimestamp == nil {
			d.label[pod] = with
		}
	}
	d.status.Workers.Active, d.status.Workers.Succeeded = countWorkers(pods)
	d.status.Workers.Failed = 0 // those that are known failed in an earlier attempt
	if d.status.Workers.Active+d.status.Workers.Succeeded >= d.status.Workers.Total {
		running(o, d)
	} else if d.status.State != mlv1.StateRunning {
		reason, message := waitingFor(o, d, pods)
		initializing(o, d, reason, message)
	}
	d.scrape = metricsURL(o.job, pods)
}

func planFailure(o observed, d *desired, found failure) {
	judged := judge(o.job, found)
	d.status.LastFailure = found.status(o.now)
	if judged.restart {
		restart(o, d, found)
		return
	}
	d.status.Workers.Failed = countFailed(o.podsOf(o.workers.UID))
	fail(o, d, judged.reason, judged.message)
}

// planSuspended stops the workers, by deleting their Job. The Job's own suspension would count the stopped pods as
// failures.
func planSuspended(o observed, d *desired) {
	if o.workers != nil {
		d.remove(o.workers)
		stoppingWorkers(o, d)
		return
	}
	if wait := lingering(o, d); wait > 0 {
		stoppingWorkers(o, d)
		d.lookAgain(wait)
		return
	}
	suspended(o, d)
}

// planFinished deletes what the clean-up policy says, and the job itself when its time to live is over.
func planFinished(o observed, d *desired) {
	if ttl := o.job.Spec.TTLSecondsAfterFinished; ttl != nil && d.status.CompletionTime != nil {
		left := d.status.CompletionTime.Add(time.Duration(*ttl) * time.Second).Sub(o.now)
		if left <= 0 {
			d.deleteSelf = true
			return
		}
		d.lookAgain(left)
	}
	leaveQueue(o, d)
	switch o.job.Spec.CleanupPolicy {
	case mlv1.CleanupAll:
		d.remove(o.workers)
		d.remove(o.headless)
		d.remove(o.master)
		d.remove(o.tensorBoard)
		d.remove(o.config)
		d.remove(o.policy)
	case mlv1.CleanupRunning:
		// No pod of a Job that is complete runs; one that seems to is only behind in the cache.
		if o.workers == nil || jobComplete(o.workers) {
			return
		}
		for _, pod := range o.podsOf(o.workers.UID) {
			if pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded {
				d.remove(pod)
			}
		}
	}
}

func pastDeadline(o observed, d *desired) bool {
	deadline := deadlineOf(o, d)
	return deadline != nil && !o.now.Before(*deadline)
}

// deadlineOf is the end of activeDeadlineSeconds; nil when there is none or the job has not started. Like a Job's, it
// begins anew when the job is resumed.
func deadlineOf(o observed, d *desired) *time.Time {
	seconds := o.job.Spec.FailurePolicy.ActiveDeadlineSeconds
	if seconds == nil || d.status.StartTime == nil || ptr.Deref(o.job.Spec.Suspend, false) || evictedByQueue(o) {
		return nil
	}
	start := d.status.StartTime.Time
	if resumed := resumedAt(&d.status); resumed.After(start) {
		start = resumed
	}
	deadline := start.Add(time.Duration(*seconds) * time.Second)
	return &deadline
}

// jobComplete says whether the Job controller has found every worker ended with exit code 0.
func jobComplete(workers *batchv1.Job) bool {
	return slices.ContainsFunc(workers.Status.Conditions, func(condition batchv1.JobCondition) bool {
		return condition.Type == batchv1.JobComplete && condition.Status == corev1.ConditionTrue
	})
}

// succeeded says whether every worker ended with exit code 0. The pods tell before the Job controller does, which
// gathers their ends for a second.
func succeeded(workers *batchv1.Job, pods []*corev1.Pod) bool {
	if jobComplete(workers) {
		return true
	}
	done := map[string]bool{}
	for _, pod := range pods {
		if pod.Status.Phase == corev1.PodSucceeded {
			done[replicaOf(pod)] = true
		}
	}
	if resizable(workers) { // one that was lost at the very end need not come back
		return done["0"]
	}
	return len(done) == int(ptr.Deref(workers.Spec.Completions, 0))
}

func countWorkers(pods []*corev1.Pod) (active, succeeded int32) {
	for _, pod := range pods {
		switch {
		case pod.Status.Phase == corev1.PodSucceeded:
			succeeded++
		case pod.Status.Phase == corev1.PodRunning && ready(pod):
			active++
		}
	}
	return active, succeeded
}

func countFailed(pods []*corev1.Pod) int32 {
	return int32(len(slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool { return pod.Status.Phase != corev1.PodFailed })))
}

// ready says whether the training of a pod runs, whatever becomes of its sidecars.
func ready(pod *corev1.Pod) bool {
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name == workerContainer && status.Ready {
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

// remove deletes an object; nil pointers, which stand for objects that do not exist, are passed over.
func (d *desired) remove(object client.Object) {
	switch o := object.(type) {
	case *batchv1.Job:
		if o == nil {
			return
		}
	case *corev1.Service:
		if o == nil {
			return
		}
	case *corev1.ConfigMap:
		if o == nil {
			return
		}
	case *networkingv1.NetworkPolicy:
		if o == nil {
			return
		}
	}
	d.delete = append(d.delete, object)
}

// expel deletes a pod with what is left of its grace period.
func (d *desired) expel(pod *corev1.Pod, grace int64) {
	if d.expelled == nil {
		d.expelled = map[*corev1.Pod]int64{}
	}
	d.expelled[pod] = grace
}

// lookAgain asks for another look after the time, or before when another asked for less.
func (d *desired) lookAgain(after time.Duration) {
	if d.again == 0 || after < d.again {
		d.again = max(after, time.Millisecond)
	}
}
