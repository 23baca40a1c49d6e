package trainingjob

import (
	"fmt"
	"math"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/podend"
)

// kueueLabels are the labels of a TrainingJob that its Job gets for Kueue.
var kueueLabels = []string{build.KueueQueueLabel, "kueue.x-k8s.io/priority-class", "kueue.x-k8s.io/max-exec-time-seconds"}

// kueueTopology begins the annotations by which pods ask Kueue for a topology.
const kueueTopology = "kueue.x-k8s.io/podset-"

// kueueWorkload is the kind that a cluster with Kueue serves.
var kueueWorkload = schema.GroupKind{Group: "kueue.x-k8s.io", Kind: "Workload"}

// joinQueue has a new Job wait for Kueue, which starts it, and may stop it and start it again. Kueue does so by the Job's
// suspension, at which a Job counts its stopped pods as failed; so no number of failures fails such a Job, and it is
// for the operator alone to judge them. What Kueue puts into the Job, as node selectors, stays as it is.
func (o *observed) joinQueue(workers *batchv1.Job) {
	from := o.job.Labels
	if o.workers != nil { // a Job that runs keeps its queue, whatever becomes of the label of the TrainingJob
		from = o.workers.Labels
	}
	if from[build.KueueQueueLabel] == "" {
		return
	}
	for _, name := range kueueLabels {
		if value, ok := from[name]; ok {
			workers.Labels[name] = value
		}
	}
	for name, value := range o.job.Annotations {
		if strings.HasPrefix(name, kueueTopology) {
			workers.Spec.Template.Annotations[name] = value
		}
	}
	workers.Spec.Suspend = ptr.To(true)
	workers.Spec.BackoffLimit, workers.Spec.PodFailurePolicy = ptr.To[int32](math.MaxInt32), nil
	build.NoteSpec(workers, o.job)
}

// isHeldByKueue says whether Kueue does not let the Job run, or its pods have not yet all been stopped or not yet been
// asked for again.
func isHeldByKueue(workers *batchv1.Job) bool {
	if workers.Labels[build.KueueQueueLabel] == "" {
		return false
	}
	if ptr.Deref(workers.Spec.Suspend, false) {
		return true
	}
	return isTrue(jobCondition(workers, batchv1.JobSuspended))
}

// sinceAdmission are the pods that a Job has had since Kueue last let it run: the state of those before does not matter. The Job controller
// makes pods before it notes that the Job was resumed, so that they may be older than the note. Those from before that it has stopped are
// being deleted.
func sinceAdmission(workers *batchv1.Job, pods []*corev1.Pod) []*corev1.Pod {
	resumed := jobCondition(workers, batchv1.JobSuspended)
	if workers.Labels[build.KueueQueueLabel] == "" || resumed == nil {
		return pods
	}
	since := resumed.LastTransitionTime.Time
	return only(pods, func(pod *corev1.Pod) bool {
		ended := workerProgram.Terminated(pod)
		endedSince := ended != nil && pod.DeletionTimestamp == nil && !ended.FinishedAt.Time.Before(since)
		return !pod.CreationTimestamp.Time.Before(since) || !podend.HasFailed(pod) || endedSince
	})
}

// startedAt is since when a Job may have pods.
func startedAt(workers *batchv1.Job) time.Time {
	start := workers.CreationTimestamp.Time
	if resumed := jobCondition(workers, batchv1.JobSuspended); resumed != nil && resumed.LastTransitionTime.After(start) {
		start = resumed.LastTransitionTime.Time
	}
	return start
}

// planHeldByKueue is the plan while Kueue does not let the Job run.
func (p *planner) planHeldByKueue() {
	if !p.lostAdmission() {
		p.setPending(reasons.Queued, fmt.Sprintf("waiting for Kueue to admit it through LocalQueue %s: kubectl get workloads -n %s",
			p.workers.Labels[build.KueueQueueLabel], p.job.Namespace))
		return
	}
	p.setSuspendedFor(reasons.EvictedByQueue, fmt.Sprintf(
		"evicted by Kueue from LocalQueue %s; waiting for readmission: kubectl get workloads -n %s",
		p.workers.Labels[build.KueueQueueLabel], p.job.Namespace))
}

// lostAdmission says whether Kueue had let a job run that it holds.
func (o *observed) lostAdmission() bool {
	before := &o.job.Status
	admitted := meta.IsStatusConditionTrue(before.Conditions, reasons.ConditionAdmitted)
	return admitted && (before.State == mlv1.StateRunning || before.State == mlv1.StateInitializing) ||
		before.State == mlv1.StateSuspended && (before.Reason == reasons.EvictedByQueue || before.Reason == reasons.RequeuedAfterEdit)
}

// isEvicted says whether the job is suspended because its queue took its resources back.
func (o *observed) isEvicted() bool {
	return o.isAwaitingReadmission() || o.workers != nil && isHeldByKueue(o.workers) && o.workers.DeletionTimestamp == nil &&
		meta.IsStatusConditionTrue(o.job.Status.Conditions, reasons.ConditionSuspended)
}

// deleteHeldJob deletes the Job of a queued or elastic job that has failed, which would otherwise go on making pods and holding
// its quota.
func (p *planner) deleteHeldJob() {
	if p.workers != nil && (p.workers.Labels[build.KueueQueueLabel] != "" || isResizable(p.workers)) && p.workers.DeletionTimestamp == nil &&
		p.status.State == mlv1.StateFailed && !jobComplete(p.workers) {
		p.remove(p.workers)
	}
}
