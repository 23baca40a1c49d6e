//go:build e2e

package e2e

import (
	"context"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// afterCheckpoint accepts a running job that has a checkpoint of at least this epoch.
func afterCheckpoint(epoch int32) func(*mlv1.TrainingJob) bool {
	return func(job *mlv1.TrainingJob) bool {
		c := job.Status.Checkpoint
		return job.Status.State == mlv1.StateRunning && c != nil && c.Epoch >= epoch
	}
}

// restoredStep is the optimizer step at which the first rank says that it was restored.
func restoredStep(t *testing.T, job *mlv1.TrainingJob) int64 {
	t.Helper()
	master := workers(t, job)["0"]
	found := regexp.MustCompile(`restored at epoch \d+ step (\d+)`).FindStringSubmatch(log(t.Context(), &master))
	require.NotNil(t, found, "rank 0 does not say that it was restored")
	step, err := strconv.ParseInt(found[1], 10, 64)
	require.NoError(t, err)
	return step
}

func TestKilledManagerLosesAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	job := digits(namespace(t), "manager").pace(150e6).obj()
	require.NoError(t, cluster.Create(t.Context(), job))
	reaches(t, job, "it trains", func(job *mlv1.TrainingJob) bool {
		return job.Status.State == mlv1.StateRunning && job.Status.CurrentEpoch >= 1
	})
	attempt, pods := child(t, job, &batchv1.Job{}, "-training").UID, uids(workers(t, job))

	for _, pod := range managerPods(t) {
		require.NoError(t, cluster.Delete(t.Context(), &pod, client.GracePeriodSeconds(0)))
	}

	done := completes(t, job)
	assert.Zero(t, done.Status.RestartCount)
	assert.Equal(t, attempt, child(t, job, &batchv1.Job{}, "-training").UID, "the Job is the same")
	assert.Equal(t, pods, uids(workers(t, job)), "the pods are the same")
	assert.Equal(t, int32(8), done.Status.CurrentEpoch)
	assert.Equal(t, "100%", done.Status.Progress)
}

func uids(pods map[string]corev1.Pod) map[string]types.UID {
	set := map[string]types.UID{}
	for replica, pod := range pods {
		set[replica] = pod.UID
	}
	return set
}

func TestEvictedWorkerDoesNotCountAgainstTheBackoffLimit(t *testing.T) {
	t.Parallel()
	job := digits(namespace(t), "evicted").pace(100e6).obj()
	job.Spec.FailurePolicy.BackoffLimit = ptr.To[int32](0)
	require.NoError(t, cluster.Create(t.Context(), job))
	reaches(t, job, "there is a checkpoint", afterCheckpoint(1))

	victim := workers(t, job)["0"]
	require.NoError(t, cluster.typed.CoreV1().Pods(job.Namespace).EvictV1(t.Context(), eviction(&victim)))

	done := completes(t, job)
	assert.Equal(t, int32(1), done.Status.RestartCount)
	assert.Equal(t, int32(1), done.Status.DisruptionCount)
	assert.Positive(t, restoredStep(t, job))
}

func TestSuspendSavesACheckpointAndResumeGoesOnFromIt(t *testing.T) {
	t.Parallel()
	job := digits(namespace(t), "suspend").pace(150e6).obj()
	job.Spec.Checkpoint.Frequency = 100 // only the suspension saves one
	require.NoError(t, cluster.Create(t.Context(), job))
	reaches(t, job, "it trains", func(job *mlv1.TrainingJob) bool {
		return job.Status.State == mlv1.StateRunning && job.Status.CurrentEpoch >= 2
	})

	longer := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"suspend":false,"hyperparameters":{"epochs":9}}}`))
	require.ErrorContains(t, cluster.Patch(t.Context(), job.DeepCopy(), longer), "spec.hyperparameters: can be changed only while the job is suspended or queued")
	setSuspend(t, job, true)
	reaches(t, job, "it is Suspended", inState(mlv1.StateSuspended))
	var left corev1.PodList
	require.NoError(t, cluster.List(t.Context(), &left, client.InNamespace(job.Namespace), client.MatchingLabels{mlv1.LabelTrainingJob: job.Name}))
	for _, pod := range left.Items {
		assert.NotEqual(t, corev1.PodRunning, pod.Status.Phase, "no worker runs while the job is suspended")
	}

	require.NoError(t, cluster.Patch(t.Context(), job.DeepCopy(), longer), "it is changed and resumed at once")
	done := completes(t, job)
	assert.Positive(t, restoredStep(t, job), "it goes on where it was suspended")
	assert.Zero(t, done.Status.RestartCount)
	assert.Equal(t, int32(9), done.Status.CurrentEpoch)
	assert.Equal(t, int32(9), done.Status.TotalEpochs)
}

func setSuspend(t *testing.T, job *mlv1.TrainingJob, suspend bool) {
	t.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"suspend":`+strconv.FormatBool(suspend)+`}}`))
	require.NoError(t, cluster.Patch(t.Context(), job.DeepCopy(), patch))
}

func TestDeletionRemovesAllButTheCheckpoints(t *testing.T) {
	t.Parallel()
	job := digits(namespace(t), "deleted").alone().pace(100e6).obj()
	require.NoError(t, cluster.Create(t.Context(), job))
	reaches(t, job, "there is a checkpoint", afterCheckpoint(1))

	require.NoError(t, cluster.Delete(t.Context(), job))

	children := map[string]client.Object{
		"-training": &batchv1.Job{}, "-headless": &corev1.Service{}, "-master": &corev1.Service{}, "-config": &corev1.ConfigMap{},
	}
	for suffix, object := range children {
		eventually(t, job.Name+suffix+" is gone", func(ctx context.Context) (bool, error) {
			err := cluster.Get(ctx, client.ObjectKey{Namespace: job.Namespace, Name: job.Name + suffix}, object)
			return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
		})
	}
	eventually(t, "the pods are gone", func(ctx context.Context) (bool, error) {
		var pods corev1.PodList
		err := cluster.List(ctx, &pods, client.InNamespace(job.Namespace), client.MatchingLabels{mlv1.LabelTrainingJob: job.Name})
		return len(pods.Items) == 0, err
	})
	claim := child(t, job, &corev1.PersistentVolumeClaim{}, "-checkpoints")
	assert.Nil(t, claim.DeletionTimestamp, "checkpoints outlive the job")
}
