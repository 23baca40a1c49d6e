package trainingjob

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/report"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// Tests of what happens where two features meet.

func TestAFailedElasticJobIsDeletedOnlyWhenThatIsWritten(t *testing.T) {
	job := runningJob(t, elastic().BackoffLimit(0))
	workers := builders.Workers(job).Obj()
	o := see(job, workers, builders.Pod(workers, 0).Running().Obj(), builders.Pod(workers, 1).Failed(1).Obj())

	d := plan(o)
	require.Equal(t, mlv1.StateFailed, d.status.State)
	assert.Empty(t, d.delete, "a manager that stops now would find a job that lost its workers")

	o.job.Status = d.status
	assert.Contains(t, outlineOf(plan(o)).Delete, "Job bert-training, attempt 0", "the Job would replace its pods forever")
}

func TestAFailureIsSeenWhileTheAgentStillSendsTheCheckpoint(t *testing.T) {
	job := runningJob(t, elastic())
	workers := builders.Workers(job).Obj()
	cause := builders.Pod(workers, 0).Failed(137).For("OOMKilled").Obj()
	cause.Status.Phase = corev1.PodRunning // its sidecar runs
	follower := builders.Pod(workers, 1).Failed(podend.ExitPeerLost).Obj()

	d := plan(see(job, workers, cause, follower).after(time.Minute))

	assert.Equal(t, reasons.OutOfMemory, d.status.LastFailure.Reason)
	assert.Contains(t, d.status.FailureReason, "worker 0")
	assert.Equal(t, int32(1), d.status.WorkerFailures)
}

func TestTheMasterIsTheNewestPodOfReplica0(t *testing.T) {
	workers := builders.Workers(elastic().Obj()).Obj()
	pods := []*corev1.Pod{
		builders.Pod(workers, 0).Failed(1).Obj(), builders.Pod(workers, 1).Running().Obj(),
		builders.Pod(workers, 0).Again(time.Minute).Running().Obj(),
	}
	newest := pods[2].Name
	assert.Equal(t, newest, masterPod(pods).Name)
	slices.Reverse(pods)
	assert.Equal(t, newest, masterPod(pods).Name, "in whatever order the cache lists them")
}

func TestAConditionThatIsSetTwiceHasNotChanged(t *testing.T) {
	job := builders.TrainingJob("bert").Obj()
	since := metav1.NewTime(builders.Noon.Add(-time.Hour))
	job.Status.Conditions = []metav1.Condition{{
		Type: reasons.ConditionCheckpointReady, Status: metav1.ConditionFalse, Reason: "CheckpointSidecarCrashing", LastTransitionTime: since,
	}}
	p := newPlanner(see(job, nil))

	p.condition(reasons.ConditionCheckpointReady, true, reasons.StorageReady, "")
	p.condition(reasons.ConditionCheckpointReady, false, "CheckpointSidecarCrashing", "")

	assert.Equal(t, since, meta.FindStatusCondition(p.status.Conditions, reasons.ConditionCheckpointReady).LastTransitionTime)
}

func TestAPodThatIsDeletedWhileItRestoresIsNoFailure(t *testing.T) {
	workers := builders.Workers(builders.TrainingJob("bert").Checkpoints().Obj()).Obj()
	pod := builders.Pod(workers, 0).InitEnded(report.RestoreContainer, podend.ExitTerminated, "").FailedToInit().Deleting(time.Minute).Obj()

	found := podFailure(pod)

	assert.True(t, found.Lost)
	assert.Equal(t, reasons.PodDeleted, found.Reason)
}

func TestAWorkerRunsWhateverBecomesOfItsSidecars(t *testing.T) {
	job := builders.TrainingJob("bert").Workers(1).Checkpoints().Obj()
	workers := builders.Workers(job).Obj()
	pod := builders.Pod(workers, 0).Running().Obj()
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
	pod.Status.ContainerStatuses[0].Ready = true

	assert.Equal(t, mlv1.StateRunning, plan(see(job, workers, pod)).status.State)
}

func TestATargetThatIsReachedIsNotLostToTheDeadline(t *testing.T) {
	job := runningJob(t, builders.TrainingJob("bert").Workers(1).Deadline(60))
	job.Spec.SuccessPolicy = &mlv1.SuccessPolicy{TargetAccuracy: ptr.To(0.9)}
	job.Status.Conditions = append(job.Status.Conditions, metav1.Condition{
		Type: reasons.ConditionStopping, Status: metav1.ConditionTrue, Reason: reasons.TargetReached,
		Message: "accuracy 0.95 is at least 0.9", LastTransitionTime: metav1.NewTime(builders.Noon.Add(50 * time.Second)),
	})

	d := plan(see(job, nil).after(2 * time.Minute)) // its workers are stopped

	assert.Equal(t, mlv1.StateCompleted, d.status.State)
	assert.Equal(t, reasons.TargetReached, d.status.Reason)
}

func TestAnImageOfTheAgentThatCannotBePulledIsNotTheJobs(t *testing.T) {
	job := builders.TrainingJob("bert").Checkpoints().Obj()
	workers := builders.Workers(job).Obj()
	pod := builders.Pod(workers, 0).InitWaiting(report.AgentContainer, "ErrImagePull", "not found").Obj()

	reason, message := describeObstacle(pod)

	assert.Equal(t, reasons.ImagePullFailed, reason)
	assert.Contains(t, message, "of container checkpoint-agent")
	assert.NotContains(t, message, "spec.image,")
}
