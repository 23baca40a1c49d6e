package trainingjob

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/internal/podloss"
	"github.com/dcnlab/spot-training-operator/internal/progress"
)

const (
	// exitPeerLost is what a worker of the contract ends with when another worker vanished (EX_TEMPFAIL).
	exitPeerLost = 75
	// exitTerminated is 128 + SIGTERM.
	exitTerminated = 143
	// firstSignalCode is where exit codes begin that stand for a signal, by the convention of shells.
	firstSignalCode = 128

	// causeDelay is how much later than its consequences the cause of a failure may be seen.
	causeDelay = 3 * time.Second

	firstBackoff = 10 * time.Second
	maxBackoff   = 5 * time.Minute
	// maxReasonLength bounds failureReason, in characters.
	maxReasonLength = 1024
)

// failure is what made an attempt fail.
type failure struct {
	reason    string // a reason constant of the API
	message   string
	exitCode  int32 // 0 when no container ended
	disrupted bool  // lost to preemption, eviction or its node, not to the training

	who                string // the worker in words; empty when no single one is the cause
	replica, pod, node string // empty when not known
}

// status is the failure as it stands in the status.
func (f failure) status(now time.Time) *mlv1.FailureStatus {
	last := &mlv1.FailureStatus{
		Reason: f.reason, PodName: f.pod, NodeName: f.node, Counted: !f.disrupted, Time: ptr.To(metav1.NewTime(now)),
	}
	if replica, err := strconv.ParseInt(f.replica, 10, 32); err == nil {
		last.Worker = ptr.To(int32(replica))
	}
	if f.exitCode != 0 {
		last.ExitCode = ptr.To(f.exitCode)
	}
	return last
}

// findFailure says what made the attempt fail; nil when it did not. Workers that only followed, because their peer was
// gone or because they were stopped then, are not what is looked for.
func findFailure(workers *batchv1.Job, pods []*corev1.Pod) *failure {
	if !slices.ContainsFunc(pods, isFailed) {
		return jobFailure(workers)
	}
	failed := slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool { return !ending(pod) })
	first := slices.MinFunc(failed, func(a, b *corev1.Pod) int {
		return cmp.Or(
			cmp.Compare(rank(a), rank(b)),
			endOf(a).Compare(endOf(b)),
			cmp.Compare(replicaOf(a), replicaOf(b)),
		)
	})
	return podFailure(first)
}

// causeMayFollow is how long to wait for the end of another worker before those that failed are judged; 0 when there is
// nothing to wait for. When a worker is killed, the ends of those that lost it are often seen before its own.
func causeMayFollow(now time.Time, pods []*corev1.Pod) time.Duration {
	var wait time.Duration
	ended := 0
	for _, pod := range pods {
		if !ending(pod) {
			continue
		}
		if exitCode(pod) != exitPeerLost || lossOf(pod) != nil {
			return 0
		}
		ended++
		wait = max(wait, endOf(pod).Add(causeDelay).Sub(now))
	}
	if ended == 0 || ended == len(pods) {
		return 0
	}
	return wait
}

// rank orders failed pods by how likely each is the cause of the others: a disruption before a failure of its own,
// and both before those that may follow from another's end. Of these the first is the cause: one that was deleted
// before another lost it, but not one that the Job controller deleted then.
func rank(pod *corev1.Pod) int {
	code := exitCode(pod)
	switch {
	case lossOf(pod) != nil:
		return 0
	case wasDeleted(pod) || code == exitPeerLost:
		return 3
	case code == exitTerminated:
		return 2
	default:
		return 1
	}
}

// isFailed says whether the pod failed or is being taken away without having succeeded.
func isFailed(pod *corev1.Pod) bool {
	if pod.Status.Phase == corev1.PodFailed {
		return true
	}
	return pod.DeletionTimestamp != nil && pod.Status.Phase != corev1.PodSucceeded
}

// ending says whether the pod failed, or will have when its sidecars have ended too, which bring away the last checkpoint.
func ending(pod *corev1.Pod) bool { return isFailed(pod) || exitCode(pod) != 0 }

// failureOf begins the failure that a pod is the cause of.
func failureOf(pod *corev1.Pod) *failure {
	who := fmt.Sprintf("worker %s (pod %s", replicaOf(pod), pod.Name)
	if pod.Spec.NodeName != "" {
		who += " on node " + pod.Spec.NodeName
	}
	return &failure{who: who + ")", replica: replicaOf(pod), pod: pod.Name, node: pod.Spec.NodeName}
}

// podFailure says how a pod failed or was lost.
func podFailure(pod *corev1.Pod) *failure {
	found := failureOf(pod)
	if lost := lossOf(pod); lost != nil {
		found.reason, found.disrupted, found.message = lost.reason, true, lost.of(found.who)
		return found
	}
	if restoreFailure(pod, found) {
		return found
	}
	ended := terminated(pod)
	// A pod that was deleted by hand ends on its SIGTERM: that is not the training's doing either.
	if wasDeleted(pod) && (ended == nil || ended.ExitCode == 0 || ended.ExitCode == exitTerminated) {
		found.reason, found.disrupted, found.message = mlv1.ReasonPodDeleted, true, found.who+" was deleted"
		return found
	}
	if podloss.OverStorageLimit(pod) {
		found.reason = mlv1.ReasonStorageLimitExceeded
		found.message = fmt.Sprintf("%s was evicted for what it wrote to its node: %s; raise spec.resources.limits.ephemeral-storage, "+
			"or write to the checkpoint storage", found.who, strings.TrimSpace(pod.Status.Message))
		return found
	}
	if ended == nil || ended.ExitCode == 0 {
		why := cmp.Or(strings.TrimSpace(pod.Status.Reason+" "+pod.Status.Message), "no container ended")
		found.reason, found.message = mlv1.ReasonWorkerFailed, found.who+" failed: "+why
		return found
	}
	how, remedy := "", ""
	found.exitCode = ended.ExitCode
	found.reason, how, remedy = endOfContainer(ended)
	found.message = found.who + " " + how + lastWords(ended) + remedy
	return found
}

// endOfContainer classifies an exit code other than 0.
func endOfContainer(ended *corev1.ContainerStateTerminated) (reason, how, remedy string) {
	code := ended.ExitCode
	switch {
	case ended.Reason == "OOMKilled":
		return mlv1.ReasonOutOfMemory, "was killed for using more memory than its limit (exit code 137)",
			"; raise spec.resources.limits.memory or lower spec.hyperparameters.batchSize"
	case ended.Reason == "StartError" || ended.Reason == "ContainerCannotRun":
		return mlv1.ReasonContainerStartFailed, fmt.Sprintf("could not start its program (exit code %d)", code),
			"; correct spec.command, or spec.image"
	case code == exitPeerLost:
		return mlv1.ReasonPeerLost, fmt.Sprintf("ended with exit code %d, having lost another worker", code), ""
	case code > firstSignalCode:
		return mlv1.ReasonWorkerKilled, fmt.Sprintf("was killed by signal %d (exit code %d)", code-firstSignalCode, code), ""
	}
	return mlv1.ReasonWorkerFailed, fmt.Sprintf("ended with exit code %d", code), ""
}

// lastWords is what a worker said when it ended: the message of the contract, or its last log lines.
func lastWords(ended *corev1.ContainerStateTerminated) string {
	words := strings.TrimSpace(ended.Message)
	if figures, ok := progress.ParseTermination(words); ok {
		words = figures.Message
	}
	if words == "" {
		return ""
	}
	if runes := []rune(words); len(runes) > maxReasonLength {
		words = "... " + string(runes[len(runes)-maxReasonLength:])
	}
	return ": " + words
}

// jobFailure is what the Job controller knows of a failure whose pods are gone.
func jobFailure(workers *batchv1.Job) *failure {
	for _, condition := range workers.Status.Conditions {
		if (condition.Type == batchv1.JobFailed || condition.Type == batchv1.JobFailureTarget) && condition.Status == corev1.ConditionTrue {
			disrupted := strings.Contains(condition.Message, string(corev1.DisruptionTarget))
			reason := mlv1.ReasonWorkerFailed
			if disrupted {
				reason = mlv1.ReasonDisrupted
			}
			return &failure{reason: reason, disrupted: disrupted, message: condition.Reason + ": " + condition.Message}
		}
	}
	return nil
}

func terminated(pod *corev1.Pod) *corev1.ContainerStateTerminated {
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name == workerContainer {
			return status.State.Terminated
		}
	}
	return nil
}

func exitCode(pod *corev1.Pod) int32 {
	if ended := terminated(pod); ended != nil {
		return ended.ExitCode
	}
	return 0
}

// wasDeleted says whether the pod was deleted before it ended by itself.
func wasDeleted(pod *corev1.Pod) bool {
	if pod.DeletionTimestamp == nil {
		return false
	}
	ended := terminated(pod)
	return ended == nil || !ended.FinishedAt.Time.Before(deletedAt(pod))
}

// deletedAt is when the deletion of a pod was asked for; its timestamp is when its grace period ends.
func deletedAt(pod *corev1.Pod) time.Time {
	return pod.DeletionTimestamp.Add(-time.Duration(ptr.Deref(pod.DeletionGracePeriodSeconds, 0)) * time.Second)
}

// endOf is when the end of a pod began.
func endOf(pod *corev1.Pod) time.Time {
	if wasDeleted(pod) {
		return deletedAt(pod)
	}
	if ended := terminated(pod); ended != nil {
		return ended.FinishedAt.Time
	}
	return pod.CreationTimestamp.Time
}

func replicaOf(pod *corev1.Pod) string {
	return pod.Annotations[batchv1.JobCompletionIndexAnnotation]
}

// verdict is what becomes of a job after a failure.
type verdict struct {
	restart bool
	reason  string // of the end, when it is one
	message string
}

// judge decides whether the job is started again. Disruptions always are, and do not use up the backoff limit.
func judge(job *mlv1.TrainingJob, found failure) verdict {
	policy := job.Spec.FailurePolicy
	if found.disrupted {
		return verdict{restart: true}
	}
	limit := ptr.Deref(policy.BackoffLimit, 3)
	failures := job.Status.RestartCount - job.Status.DisruptionCount + job.Status.WorkerFailures
	switch {
	case found.reason == mlv1.ReasonCheckpointNotFound:
		return verdict{reason: found.reason, message: found.message}
	case policy.RestartPolicy == mlv1.RestartNever:
		return verdict{reason: mlv1.ReasonRestartPolicyNever, message: "restartPolicy is Never: " + found.message}
	case slices.Contains(policy.NonRetryableExitCodes, found.exitCode):
		return verdict{reason: mlv1.ReasonNonRetryableExitCode, message: found.message}
	case policy.RestartPolicy == mlv1.RestartExitCode && found.exitCode != 0 && found.exitCode != exitPeerLost && found.exitCode < firstSignalCode:
		return verdict{
			reason:  mlv1.ReasonNonRetryableExitCode,
			message: fmt.Sprintf("restartPolicy ExitCode restarts after codes of %d and more only: %s", firstSignalCode, found.message),
		}
	case failures >= limit:
		return verdict{
			reason:  mlv1.ReasonBackoffLimitExceeded,
			message: fmt.Sprintf("failed %d times, more than backoffLimit %d allows; last: %s", failures+1, limit, found.message),
		}
	}
	return verdict{restart: true}
}

// lostBeforeItRan says whether the attempt that was lost last is one whose workers never all ran: a cluster that takes
// away what it has just given is not to be asked again at once.
func lostBeforeItRan(status *mlv1.TrainingJobStatus) bool {
	ran := meta.FindStatusCondition(status.Conditions, mlv1.ConditionRunning)
	return ran != nil && status.LastRestartTime != nil && status.RestartCount > 1 && status.LastRestartTime.After(ran.LastTransitionTime.Time)
}

// backoff is the pause before the next attempt. There is none after a loss, a rescaling or a first failure, so
// that training goes on at once; from then on it doubles. A jitter of up to a quarter, which is the same for the same
// attempt, keeps jobs that failed together from coming back together.
func backoff(job *mlv1.TrainingJob) time.Duration {
	failures := job.Status.RestartCount - job.Status.DisruptionCount
	pause := firstBackoff
	switch {
	case job.Status.Reason == mlv1.ReasonRescaled:
		return 0
	case isLoss(job.Status.Reason):
		if !lostBeforeItRan(&job.Status) {
			return 0
		}
	case failures <= 1:
		return 0
	default:
		pause = time.Duration(math.Min(float64(firstBackoff)*math.Pow(2, float64(failures-2)), float64(maxBackoff)))
	}
	hash := fnv.New32a()
	_, _ = fmt.Fprintf(hash, "%s/%d", job.UID, job.Status.RestartCount)
	return pause + time.Duration(float64(pause)*0.25*float64(hash.Sum32())/float64(math.MaxUint32))
}
