package trainingjob

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/internal/podloss"
	"github.com/dcnlab/spot-training-operator/internal/redact"
)

// elasticPatience is how long an elastic job waits for all its workers before it counts as running with fewer.
const elasticPatience = 30 * time.Second

// planElastic follows workers that can come and go one by one: the training goes on as long as replica 0, which gathers
// the others and keeps the checkpoints, and enough of the others are there.
func planElastic(o observed, d *desired, pods []*corev1.Pod) {
	members := membersOf(pods, o.job.Spec.NumWorkers)
	var found *failure
	if slices.ContainsFunc(members, podloss.Failed) || len(pods) == 0 {
		found = findFailure(o.workers, members)
	}
	if found != nil {
		found = blameNotice(o, blameStorage(o, blameNode(o, o.workers, found)))
		if wait := causeMayFollow(o.now, members); wait > 0 && !found.disrupted {
			d.lookAgain(wait)
			return
		}
	}
	if ends := countFailures(o, d, pods); ends != nil {
		fail(o, d, ends.reason, ends.message)
		return // once that is written, planFinished deletes the Job, which would go on replacing its pods
	}
	if found != nil {
		// As it was written: a failure that is told already is no news.
		said := redact.Text(found.message, plainSecrets(o.job)...)
		if d.status.FailureReason != said || d.status.LastFailure == nil {
			d.status.FailureReason, d.status.LastFailure = said, found.status(o.now)
		}
		if !canGoOn(o.job, members) {
			restartElastic(o, d, *found)
			return
		}
	}
	if leaveOneByOne(o, d, members) {
		return
	}
	d.apply = children(o, attemptOf(o.workers))
	for _, pod := range members {
		if with := replicaLabels(pod); with != nil && pod.DeletionTimestamp == nil {
			d.label[pod] = with
		}
	}
	d.status.Workers.Active, d.status.Workers.Succeeded = countWorkers(slices.DeleteFunc(slices.Clone(members), podloss.Failed))
	d.scrape = metricsURL(o.job, members)
	missing := d.status.Workers.Active+d.status.Workers.Succeeded < d.status.Workers.Total
	switch {
	case !missing && !leaving(pods, o.job.Spec.NumWorkers):
		running(o, d)
	case d.status.State == mlv1.StateRunning || mayBegin(o, d, members):
		reason, message := incomplete(o, d, members, found)
		runningWithFewer(o, d, reason, message)
	default:
		reason, message := waitingFor(o, d, members)
		initializing(o, d, reason, message)
	}
}

// resizable says whether the pods of the Job can come and go one by one. It is asked of the Job and not of the spec,
// because an earlier version of the operator may have made it.
func resizable(workers *batchv1.Job) bool { return workers.Spec.BackoffLimitPerIndex != nil }

// membersOf are the pods that stand for the replicas from 0 to size: of those with the same index the newest.
func membersOf(pods []*corev1.Pod, size int32) []*corev1.Pod {
	newest := map[int32]*corev1.Pod{}
	for _, pod := range pods {
		index, ok := indexOf(pod)
		if !ok || index >= size {
			continue
		}
		if before := newest[index]; before == nil || compareAge(pod, before) > 0 {
			newest[index] = pod
		}
	}
	var members []*corev1.Pod
	for index := range size {
		if pod := newest[index]; pod != nil {
			members = append(members, pod)
		}
	}
	return members
}

// compareAge orders the pods of a replica by when they were made. The API server's times are of whole seconds: within
// one, the pod that still lives is the later one.
func compareAge(a, b *corev1.Pod) int {
	return cmp.Or(
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		cmp.Compare(alive(a), alive(b)),
		cmp.Compare(a.Name, b.Name),
	)
}

func alive(pod *corev1.Pod) int {
	if podloss.Failed(pod) {
		return 0
	}
	return 1
}

func indexOf(pod *corev1.Pod) (int32, bool) {
	index, err := strconv.ParseInt(replicaOf(pod), 10, 32)
	return int32(index), err == nil
}

// leaving says whether pods still run that the present size has no place for.
func leaving(pods []*corev1.Pod, size int32) bool {
	return slices.ContainsFunc(pods, func(pod *corev1.Pod) bool {
		index, ok := indexOf(pod)
		return ok && index >= size && pod.Status.Phase == corev1.PodRunning
	})
}

// countFailures counts the workers that failed by themselves and were, or are being, replaced; it returns how the job
// ends when one of these failures does not allow that. Workers that only lost another are not counted: it is.
func countFailures(o observed, d *desired, pods []*corev1.Pod) *verdict {
	var failures []failure
	for _, pod := range pods {
		if index, ok := indexOf(pod); !ok || index >= o.job.Spec.NumWorkers || !ending(pod) || workerProgram.ExitCode(pod) == podloss.ExitPeerLost {
			continue
		}
		if how := blameNotice(o, podFailure(pod)); !how.disrupted {
			failures = append(failures, *how)
		}
	}
	known := d.status.Workers.Failed // of this attempt; both counts are written together
	d.status.Workers.Failed = max(known, int32(len(failures)))
	d.status.WorkerFailures += d.status.Workers.Failed - known
	job := o.job.DeepCopy()
	job.Status.WorkerFailures = d.status.WorkerFailures - 1 // those before the last one
	for _, how := range failures {
		if judged := judge(job, how); !judged.restart {
			return &judged
		}
	}
	return nil
}

// canGoOn says whether the workers that are left can train on.
func canGoOn(job *mlv1.TrainingJob, members []*corev1.Pod) bool {
	lost := int32(0)
	for _, pod := range members {
		if !podloss.Failed(pod) {
			continue
		}
		if replicaOf(pod) == "0" {
			return false
		}
		lost++
	}
	return job.Spec.NumWorkers-lost >= job.Spec.Elastic.MinWorkers
}

// restartElastic starts the whole job again. What made it necessary is counted once, as a restart.
func restartElastic(o observed, d *desired, found failure) {
	if !found.disrupted && found.reason != mlv1.ReasonPeerLost && d.status.WorkerFailures > o.job.Status.WorkerFailures {
		d.status.WorkerFailures--
	}
	restart(o, d, found)
	d.status.Workers.Failed = 0 // what is counted there belongs to the attempt that is over
}

// mayBegin says whether a job that does not run yet goes on with fewer workers than it should have: those that are
// missing cannot come now, or let wait for them long.
func mayBegin(o observed, d *desired, members []*corev1.Pod) bool {
	if d.status.Workers.Active < o.job.Spec.Elastic.MinWorkers {
		return false
	}
	if first := masterPod(members); first == nil || first.Status.Phase != corev1.PodRunning || !ready(first) {
		return false
	}
	left := o.workers.CreationTimestamp.Add(elasticPatience).Sub(o.now)
	if left <= 0 {
		return true
	}
	d.lookAgain(left)
	hindered := int32(0)
	for _, pod := range members {
		reason, _ := stuck(pod)
		if reason != "" && unsettled(o.now, pod) <= 0 {
			hindered++
		}
	}
	return d.status.Workers.Active+hindered >= d.status.Workers.Total
}

// incomplete says why not all workers of a training that goes on take part.
func incomplete(o observed, d *desired, members []*corev1.Pod, found *failure) (reason, message string) {
	count := fmt.Sprintf("%d of %d workers run", d.status.Workers.Active, d.status.Workers.Total)
	if least := o.job.Spec.Elastic.MinWorkers; d.status.Workers.Active < least {
		count += fmt.Sprintf(", and the training waits until %d do", least)
	} else if found != nil {
		count = fmt.Sprintf("goes on with %d of %d workers", d.status.Workers.Active, d.status.Workers.Total)
	}
	message = count
	if found != nil {
		message += ": " + found.message
	} else if hindrance := hindrance(o, d, members); hindrance != "" {
		message += ": " + hindrance
	}
	switch {
	case found != nil:
		return mlv1.ReasonWorkerLost, message
	case o.job.Status.Workers != nil && o.job.Status.Workers.Total != o.job.Spec.NumWorkers,
		leaving(o.podsOf(o.workers.UID), o.job.Spec.NumWorkers):
		return mlv1.ReasonRescaling, message
	case d.status.State == mlv1.StateRunning && d.status.Reason == mlv1.ReasonWorkersRunning && len(members) < int(d.status.Workers.Total):
		return mlv1.ReasonWorkerLost, message // its pod is gone without a trace
	case d.status.State == mlv1.StateRunning:
		return d.status.Reason, message
	}
	return mlv1.ReasonWorkersStarting, message
}

// hindrance says why a worker that is missing does not start; empty when nothing is known to be wrong.
func hindrance(o observed, d *desired, members []*corev1.Pod) string {
	for _, pod := range members {
		if left := unsettled(o.now, pod); left > 0 {
			d.lookAgain(left)
		} else if reason, message := stuck(pod); reason != "" {
			_, message = waitingForInstance(o, reason, message)
			return message
		}
	}
	return ""
}

// runningWithFewer is the state of an elastic training that goes on although not all its workers take part.
func runningWithFewer(o observed, d *desired, reason, message string) {
	if d.status.StartTime == nil {
		d.status.StartTime = ptr.To(metav1.NewTime(o.now))
	}
	d.enter(mlv1.StateRunning, reason)
	d.condition(o, mlv1.ConditionInitialized, true, reason, message)
	d.condition(o, mlv1.ConditionRunning, true, reason, message)
	d.conclude(o, mlv1.ConditionRestarting, reason, message)
}
