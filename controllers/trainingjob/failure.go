package trainingjob

import (
	"fmt"
	"hash/fnv"
	"math"
	"regexp"
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
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/internal/source"
	"github.com/dcnlab/spot-training-operator/internal/training/progress"
)

const (
	firstBackoff = 10 * time.Second
	maxBackoff   = 5 * time.Minute
)

// workerProgram is the container whose end is that of its pod.
var workerProgram = podend.Program{
	Container: build.WorkerContainer,
	Remedies: map[string]string{
		reasons.OutOfMemory:          "raise spec.resources.limits.memory or lower spec.hyperparameters.batchSize",
		reasons.StorageLimitExceeded: "raise spec.resources.limits.ephemeral-storage, or write to the checkpoint storage",
		reasons.ContainerStartFailed: "correct spec.command, or spec.image",
		reasons.InitContainerFailed:  "correct spec.podTemplate.initContainers",
		reasons.PodPreempted:         "to prevent it, give the job a higher spec.scheduling.priority",
		reasons.Evicted:              "a PodDisruptionBudget that selects the job's pods prevents such evictions",
		reasons.NodePressure:         "set spec.resources.requests to what a worker really uses",
		reasons.NodeTainted:          "to stay on such nodes, add the taint to spec.scheduling.tolerations",
	},
	LastWords: func(message string) string {
		if figures, ok := progress.ParseTermination(message); ok {
			return figures.Message
		}
		return message
	},
}

// failure is what made an attempt fail.
type failure struct {
	podend.End

	worker             string // the worker in words; empty when no single one is the cause
	replica, pod, node string // empty when not known

	silent map[string]string // the nodes of workers that have reported no end, with their boot IDs: one of these may be the cause
}

// keptFailures is how many failures before the last one are kept.
const keptFailures = 3

// recordFailure writes a failure of the present attempt into the status, and keeps those before it: their pods, and so their logs, go.
func (p *planner) recordFailure(found failure) {
	if before := p.status.LastFailure; before != nil {
		earlier := slices.Concat([]mlv1.FailureStatus{*before}, p.status.EarlierFailures)
		p.status.EarlierFailures = earlier[:min(len(earlier), keptFailures)]
	}
	p.status.LastFailure = found.status(p.status.RestartCount+1, p.now)
}

// status is the failure as it stands in the status.
func (f failure) status(attempt int32, now time.Time) *mlv1.FailureStatus {
	last := &mlv1.FailureStatus{
		Attempt: attempt, Reason: f.Reason, PodName: f.pod, NodeName: f.node, Counted: !f.Lost, Time: ptr.To(metav1.NewTime(now)), Output: f.Output,
	}
	if replica, err := strconv.ParseInt(f.replica, 10, 32); err == nil {
		last.Worker = ptr.To(int32(replica))
	}
	if f.ExitCode != 0 {
		last.ExitCode = ptr.To(f.ExitCode)
	}
	return last
}

// lostTo is the same failure, explained by a loss.
func (f failure) lostTo(reason, detail string) *failure {
	f.End = workerProgram.LossOf(reason, f.worker, detail)
	return &f
}

// findFailure says what made the attempt fail; nil when it did not. Workers that only ended because their peer was gone, or because they
// were stopped then, are not the cause. Known secrets are not repeated.
func findFailure(workers *batchv1.Job, pods []*corev1.Pod, secrets ...string) *failure {
	if !slices.ContainsFunc(pods, podend.HasFailed) {
		if len(only(pods, podend.IsEnded)) < len(pods) {
			return nil // of a Job that has failed: the Job controller stops these, or what it saw of them is still to be heard of
		}
		return jobFailure(workers)
	}
	return podFailure(workerProgram.Cause(only(pods, isEnding)), secrets...)
}

// causeMayFollow is how long to wait for the end of another worker before those that failed are judged; 0 for not at all.
func (o *observed) causeMayFollow(pods []*corev1.Pod) time.Duration {
	return workerProgram.CauseMayFollow(o.now, only(pods, isEnding), len(pods), o.peersLost)
}

// isEnding says whether the pod failed, or will have when its sidecars have ended too, which store the last checkpoint.
func isEnding(pod *corev1.Pod) bool { return podend.HasFailed(pod) || workerProgram.ExitCode(pod) != 0 }

// failureOf begins the failure that a pod is the cause of.
func failureOf(pod *corev1.Pod) failure {
	worker := fmt.Sprintf("worker %s (%s)", replicaOf(pod), podend.InWords(pod))
	return failure{worker: worker, replica: replicaOf(pod), pod: pod.Name, node: pod.Spec.NodeName}
}

// podFailure says how a pod failed or was lost.
func podFailure(pod *corev1.Pod, secrets ...string) *failure {
	found := failureOf(pod)
	found.End = workerProgram.EndOf(pod, found.worker, secrets...)
	if reason, _ := workerProgram.Loss(pod); reason == "" {
		if end := restoreEnd(pod, found.worker, secrets); end != nil {
			found.End = *end
		} else if end := source.EndOf(pod, found.worker); end != nil {
			found.End = *end
		}
	}
	return &found
}

// jobFailure is what the Job controller knows of a failure whose pods are gone.
func jobFailure(workers *batchv1.Job) *failure {
	for _, condition := range workers.Status.Conditions {
		if (condition.Type == batchv1.JobFailed || condition.Type == batchv1.JobFailureTarget) && condition.Status == corev1.ConditionTrue {
			end := podend.End{Reason: reasons.ProgramFailed, Message: condition.Reason + ": " + condition.Message, ExitCode: exitCodeIn(condition.Message)}
			switch {
			case strings.Contains(condition.Message, string(corev1.DisruptionTarget)):
				end.Reason, end.Lost = reasons.Disrupted, true
			case end.ExitCode == podend.ExitTerminated, end.ExitCode == podend.ExitKilled, // one that is killed but not deleted is still there
				condition.Reason == batchv1.JobReasonBackoffLimitExceeded: // of a worker that failed it is the pod failure policy
				end = workerProgram.LossOf(reasons.PodDeleted, "a worker", condition.Message)
			}
			return &failure{End: end}
		}
	}
	return nil
}

// exitCode is how the Job controller says that a container ended by which a rule of the pod failure policy was met.
var exitCode = regexp.MustCompile(`failed with exit code (\d+)`)

// exitCodeIn is the exit code in the message of a Job's condition; 0 for none.
func exitCodeIn(message string) int32 {
	found := exitCode.FindStringSubmatch(message)
	if found == nil {
		return 0
	}
	code, _ := strconv.ParseInt(found[1], 10, 32)
	return int32(code)
}

func replicaOf(pod *corev1.Pod) string {
	return pod.Annotations[batchv1.JobCompletionIndexAnnotation]
}

// outcome is what follows for a job from a failure.
type outcome struct {
	restart bool
	reason  string // of the end, when it is one
	message string
}

// judge decides whether the job is started again. After a loss it always is, which does not use up the backoff limit.
func judge(job *mlv1.TrainingJob, found failure) outcome {
	policy := job.Spec.FailurePolicy
	if found.Lost {
		return outcome{restart: true}
	}
	limit := ptr.Deref(policy.BackoffLimit, 3)
	failures := job.Status.RestartCount - job.Status.DisruptionCount + job.Status.WorkerFailures
	switch {
	case found.Reason == reasons.CheckpointNotFound, source.IsPermanent(found.Reason):
		return outcome{reason: found.Reason, message: found.Message}
	case policy.RestartPolicy == mlv1.RestartNever:
		return outcome{reason: reasons.RestartPolicyNever, message: "restartPolicy is Never: " + found.Message}
	case slices.Contains(policy.NonRetryableExitCodes, found.ExitCode):
		return outcome{reason: reasons.NonRetryableExitCode, message: found.Message}
	case policy.RestartPolicy == mlv1.RestartExitCode && found.ExitCode != 0 && found.ExitCode != podend.ExitPeerLost && found.ExitCode < podend.FirstSignalCode:
		return outcome{
			reason:  reasons.NonRetryableExitCode,
			message: fmt.Sprintf("restartPolicy ExitCode only restarts after exit codes from %d: %s", podend.FirstSignalCode, found.Message),
		}
	case failures >= limit:
		return outcome{
			reason:  reasons.BackoffLimitExceeded,
			message: fmt.Sprintf("failed %d times, backoffLimit is %d; last: %s", failures+1, limit, found.Message),
		}
	}
	return outcome{restart: true}
}

// wasLostBeforeItRan says whether the attempt that was lost last is one whose workers never all ran: a cluster that takes away what it has
// just given must not be asked again at once.
func wasLostBeforeItRan(status *mlv1.TrainingJobStatus) bool {
	ran := meta.FindStatusCondition(status.Conditions, reasons.ConditionRunning)
	return ran != nil && status.LastRestartTime != nil && status.RestartCount > 1 && status.LastRestartTime.After(ran.LastTransitionTime.Time)
}

// backoff is the pause before the next attempt. There is none after a loss, a rescaling or a first failure, so that the training continues
// at once; from then on it doubles. A jitter of up to a quarter, which is the same for the same attempt, keeps jobs that failed together
// from restarting together.
func backoff(job *mlv1.TrainingJob) time.Duration {
	failures := job.Status.RestartCount - job.Status.DisruptionCount
	pause := firstBackoff
	switch {
	case job.Status.Reason == reasons.Rescaled:
		return 0
	case source.IsTemporary(job.Status.Reason):
		pause = min(firstBackoff<<(2*(unfetched(&job.Status)-1)), maxBackoff)
	case podend.IsLoss(job.Status.Reason):
		if !wasLostBeforeItRan(&job.Status) {
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
