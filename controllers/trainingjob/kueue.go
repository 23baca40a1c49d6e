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
	"github.com/dcnlab/spot-training-operator/internal/podloss"
)

// kueueQueue is the label by which Kueue manages a job.
const kueueQueue = "kueue.x-k8s.io/queue-name"

// kueueLabels are the labels of a TrainingJob that its Job gets for Kueue.
var kueueLabels = []string{kueueQueue, "kueue.x-k8s.io/priority-class", "kueue.x-k8s.io/max-exec-time-seconds"}

// kueueTopology begins the annotations by which pods ask Kueue for a topology.
const kueueTopology = "kueue.x-k8s.io/podset-"

// kueueWorkload is the kind that a cluster with Kueue serves.
var kueueWorkload = schema.GroupKind{Group: "kueue.x-k8s.io", Kind: "Workload"}

// queueName is the LocalQueue of Kueue that the job waits in; empty when it waits in none.
func queueName(job *mlv1.TrainingJob) string { return job.Labels[kueueQueue] }

// joinQueue has a new Job wait for Kueue, which starts it, and may stop it and start it again. Kueue does so by the Job's
// suspension, at which a Job counts its stopped pods as failed; so no number of failures fails such a Job, and it is
// for the operator alone to judge them. What Kueue puts into the Job, as node selectors, stays as it is.
func joinQueue(o observed, workers *batchv1.Job) {
	from := o.job.Labels
	if o.workers != nil { // a Job that runs keeps its queue, whatever becomes of the label of the TrainingJob
		from = o.workers.Labels
	}
	if from[kueueQueue] == "" {
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
}

// queueObstacle says why a job that is to wait in a queue cannot; empty when it can.
func queueObstacle(o observed) (reason, message string) {
	if queueName(o.job) == "" || o.kueue {
		return "", ""
	}
	return mlv1.ReasonKueueNotServed, fmt.Sprintf(
		"the label %s names LocalQueue %s, but the cluster does not serve %s: install Kueue, or remove the label",
		kueueQueue, queueName(o.job), kueueWorkload)
}

// heldByQueue says whether Kueue does not let the Job run, or its pods have not yet all been stopped or not yet been
// asked for again.
func heldByQueue(workers *batchv1.Job) bool {
	if workers.Labels[kueueQueue] == "" {
		return false
	}
	if ptr.Deref(workers.Spec.Suspend, false) {
		return true
	}
	condition := suspensionOf(workers)
	return condition != nil && condition.Status == corev1.ConditionTrue
}

func suspensionOf(workers *batchv1.Job) *batchv1.JobCondition {
	for i := range workers.Status.Conditions {
		if workers.Status.Conditions[i].Type == batchv1.JobSuspended {
			return &workers.Status.Conditions[i]
		}
	}
	return nil
}

// sinceAdmission are the pods that a Job has had since Kueue last let it run: what became of those before is no concern. The Job controller
// makes pods before it notes that the Job was resumed, so that they may be older than the note. Those from before that it has stopped are
// being deleted.
func sinceAdmission(workers *batchv1.Job, pods []*corev1.Pod) []*corev1.Pod {
	resumed := suspensionOf(workers)
	if workers.Labels[kueueQueue] == "" || resumed == nil {
		return pods
	}
	since := resumed.LastTransitionTime.Time
	var present []*corev1.Pod
	for _, pod := range pods {
		ended := workerProgram.Terminated(pod)
		endedSince := ended != nil && pod.DeletionTimestamp == nil && !ended.FinishedAt.Time.Before(since)
		if !pod.CreationTimestamp.Time.Before(since) || !podloss.Failed(pod) || endedSince {
			present = append(present, pod)
		}
	}
	return present
}

// startedAt is since when a Job may have pods.
func startedAt(workers *batchv1.Job) time.Time {
	start := workers.CreationTimestamp.Time
	if resumed := suspensionOf(workers); resumed != nil && resumed.LastTransitionTime.After(start) {
		start = resumed.LastTransitionTime.Time
	}
	return start
}

// planQueued is the plan while Kueue does not let the Job run.
func planQueued(o observed, d *desired) {
	before := &o.job.Status
	admitted := meta.IsStatusConditionTrue(before.Conditions, mlv1.ConditionAdmitted)
	evicted := (admitted && (before.State == mlv1.StateRunning || before.State == mlv1.StateInitializing)) ||
		(before.State == mlv1.StateSuspended && before.Reason == mlv1.ReasonEvictedByQueue)
	if !evicted {
		hold(o, d, mlv1.ReasonQueued, fmt.Sprintf("waits for Kueue to admit it through LocalQueue %s: kubectl get workloads -n %s",
			o.workers.Labels[kueueQueue], o.job.Namespace))
		return
	}
	suspendedFor(o, d, mlv1.ReasonEvictedByQueue, fmt.Sprintf(
		"Kueue took back the resources of LocalQueue %s, and the job waits for them again: kubectl get workloads -n %s",
		o.workers.Labels[kueueQueue], o.job.Namespace))
}

// evictedByQueue says whether the job is suspended because its queue took its resources back.
func evictedByQueue(o observed) bool {
	return withdrawn(o) || o.workers != nil && heldByQueue(o.workers) && o.workers.DeletionTimestamp == nil &&
		meta.IsStatusConditionTrue(o.job.Status.Conditions, mlv1.ConditionSuspended)
}

// leaveQueue deletes the Job of a queued or elastic job that has failed, which would otherwise go on making pods and holding
// its quota.
func leaveQueue(o observed, d *desired) {
	if o.workers != nil && (o.workers.Labels[kueueQueue] != "" || resizable(o.workers)) && o.workers.DeletionTimestamp == nil &&
		d.status.State == mlv1.StateFailed && !jobComplete(o.workers) {
		d.remove(o.workers)
	}
}
