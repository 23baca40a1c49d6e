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
	// workerProgram is the container whose end is that of its pod.
	workerProgram = podloss.Program(workerContainer)

	firstBackoff = 10 * time.Second
	maxBackoff   = 5 * time.Minute
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
	if !slices.ContainsFunc(pods, podloss.Failed) {
		return jobFailure(workers)
	}
	first := slices.MinFunc(endingOf(pods), func(a, b *corev1.Pod) int {
		return cmp.Or(
			cmp.Compare(rank(a), rank(b)),
			workerProgram.EndOf(a).Compare(workerProgram.EndOf(b)),
			cmp.Compare(replicaOf(a), replicaOf(b)),
		)
	})
	return podFailure(first)
}

// causeMayFollow is how long to wait for the end of another worker before those that failed are judged; 0 for not at all.
func causeMayFollow(now time.Time, pods []*corev1.Pod) time.Duration {
	return workerProgram.CauseMayFollow(now, endingOf(pods), len(pods))
}

func endingOf(pods []*corev1.Pod) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool { return !ending(pod) })
}

// rank orders failed pods by how likely each is the cause of the others: a disruption before a failure of its own,
// and both before those that may follow from another's end. Of these the first is the cause: one that was deleted
// before another lost it, but not one that the Job controller deleted then.
func rank(pod *corev1.Pod) int {
	code := workerProgram.ExitCode(pod)
	switch {
	case lossOf(pod) != nil:
		return 0
	case workerProgram.WasDeleted(pod) || code == podloss.ExitPeerLost:
		return 3
	case code == podloss.ExitTerminated:
		return 2
	default:
		return 1
	}
}

// ending says whether the pod failed, or will have when its sidecars have ended too, which bring away the last checkpoint.
func ending(pod *corev1.Pod) bool { return podloss.Failed(pod) || workerProgram.ExitCode(pod) != 0 }

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
	ended := workerProgram.Terminated(pod)
	// A pod that was deleted by hand ends on its SIGTERM: that is not the training's doing either.
	if workerProgram.WasDeleted(pod) && (ended == nil || ended.ExitCode == 0 || ended.ExitCode == podloss.ExitTerminated) {
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
	case code == podloss.ExitPeerLost:
		return mlv1.ReasonPeerLost, fmt.Sprintf("ended with exit code %d, having lost another worker", code), ""
	case code > podloss.FirstSignalCode:
		return mlv1.ReasonWorkerKilled, fmt.Sprintf("was killed by signal %d (exit code %d)", code-podloss.FirstSignalCode, code), ""
	}
	return mlv1.ReasonWorkerFailed, fmt.Sprintf("ended with exit code %d", code), ""
}

// lastWords is what a worker said when it ended: the message of the contract, or its last log lines.
func lastWords(ended *corev1.ContainerStateTerminated) string {
	words := strings.TrimSpace(ended.Message)
	if figures, ok := progress.ParseTermination(words); ok {
		words = figures.Message
	}
	return podloss.LastWords(words)
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
	case policy.RestartPolicy == mlv1.RestartExitCode && found.exitCode != 0 && found.exitCode != podloss.ExitPeerLost && found.exitCode < podloss.FirstSignalCode:
		return verdict{
			reason:  mlv1.ReasonNonRetryableExitCode,
			message: fmt.Sprintf("restartPolicy ExitCode restarts after codes of %d and more only: %s", podloss.FirstSignalCode, found.message),
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
