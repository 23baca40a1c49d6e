package trainingjob

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// restored is a job as a restored backup has it: the status is that of the job before, and its UID another.
func restored(before *mlv1.TrainingJob) *mlv1.TrainingJob {
	job := before.DeepCopy()
	job.UID += "-again"
	return job
}

func TestTheStatusNamesTheJobThatItSpeaksOf(t *testing.T) {
	job := runningJob(t, builders.TrainingJob("bert"))
	assert.Equal(t, job.UID, job.Status.UID)
	assert.Nil(t, job.Status.Restored)

	ended := builders.TrainingJob("bert").Status(mlv1.TrainingJobStatus{State: mlv1.StateCompleted}).Obj()
	assert.Empty(t, plan(see(ended, nil)).status.UID, "a job that ended before the field was there is not written for its sake")
}

func TestARestoredJobThatRanStartsAgain(t *testing.T) {
	before := runningJob(t, builders.TrainingJob("bert").Checkpoints().Workers(2))
	before.Status.Checkpoint = &mlv1.CheckpointStatus{Path: "/bert/uid-of-bert/checkpoint-epoch-3", Epoch: 3}
	before.Status.Admission = &mlv1.AdmissionStatus{AdmittedTime: ptr.To(metav1.NewTime(builders.Noon))}
	before.Status.UnsettledFailures = []mlv1.UnsettledFailure{{Time: metav1.NewTime(builders.Noon)}}
	job := restored(before)

	taken := plan(see(job, nil))
	assert.Empty(t, taken.apply, "what is decided is written first")
	assert.Equal(t, mlv1.StateRestarting, taken.status.State)
	assert.Equal(t, reasons.RestoredFromBackup, taken.status.Reason)
	assert.Equal(t, int32(1), taken.status.RestartCount)
	assert.Equal(t, int32(1), taken.status.DisruptionCount, "it does not count against backoffLimit")
	assert.Equal(t, job.UID, taken.status.UID)
	assert.Equal(t, &mlv1.RestoredStatus{UID: before.UID, Time: metav1.NewTime(builders.Noon)}, taken.status.Restored)
	assert.Nil(t, taken.status.Admission)
	assert.Empty(t, taken.status.UnsettledFailures)
	told := meta.FindStatusCondition(taken.status.Conditions, reasons.ConditionRestored)
	require.NotNil(t, told)
	assert.Equal(t, "restored from a backup of the job with the UID uid-of-bert", told.Message)
	require.NotEmpty(t, eventsOf(job, &taken.status))
	assert.Equal(t, reasons.RestoredFromBackup, eventsOf(job, &taken.status)[0].Reason)

	job.Status = taken.status
	started := plan(see(job, nil).after(firstBackoff))
	assert.Equal(t, []string{"ServiceAccount bert-training", "PersistentVolumeClaim bert-checkpoints", "Job bert-training, attempt 1"}, outlineOf(started).Apply)
	assert.Equal(t, taken.status.Restored, started.status.Restored)
}

func TestARestoredJobThatDidNotRunGoesOnWaiting(t *testing.T) {
	suspended := builders.TrainingJob("bert").Suspended().Obj()
	suspended.Status = plan(see(suspended, nil)).status
	require.Equal(t, mlv1.StateSuspended, suspended.Status.State)
	restarting := failingJob(t, builders.TrainingJob("bert"), 1)
	for name, before := range map[string]*mlv1.TrainingJob{"suspended": suspended, "restarting": restarting} {
		t.Run(name, func(t *testing.T) {
			taken := plan(see(restored(before), nil))
			assert.Equal(t, before.Status.State, taken.status.State)
			assert.Equal(t, before.Status.RestartCount, taken.status.RestartCount)
			assert.True(t, meta.IsStatusConditionTrue(taken.status.Conditions, reasons.ConditionRestored))
		})
	}
}

func TestARestoredJobThatEndedHasEnded(t *testing.T) {
	before := runningJob(t, builders.TrainingJob("bert"))
	before.Status.State, before.Status.Reason, before.Status.CompletionTime = mlv1.StateCompleted, reasons.TrainingCompleted, ptr.To(metav1.NewTime(builders.Noon))
	job := restored(before)

	job.Status = plan(see(job, nil)).status
	assert.Equal(t, before.UID, job.Status.Restored.UID, "other jobs may resume from its checkpoints")
	assert.Equal(t, before.Status.CompletionTime, job.Status.CompletionTime)

	after := plan(see(job, nil))
	assert.Empty(t, after.apply)
	assert.Equal(t, job.Status, after.status)
}

func TestAJobThatIsRestoredTwiceGoesOnFromItsNewestCheckpoint(t *testing.T) {
	for name, test := range map[string]struct {
		newest string
		want   types.UID
	}{
		"it had made none":   {"s3://models/default/bert/uid-of-bert/checkpoints/checkpoint-epoch-1", "uid-of-bert"},
		"it had made others": {"s3://models/default/bert/uid-of-bert-again/checkpoints/checkpoint-epoch-2", "uid-of-bert-again"},
	} {
		t.Run(name, func(t *testing.T) {
			once := restored(runningJob(t, builders.TrainingJob("bert").InStorage(builders.S3Storage())))
			once.Status.Checkpoint = &mlv1.CheckpointStatus{Path: test.newest}
			once.Status.Restored, once.Status.UID = &mlv1.RestoredStatus{UID: "uid-of-bert"}, once.UID

			twice := restored(once)
			taken := plan(see(twice, nil))
			assert.Equal(t, test.want, taken.status.Restored.UID)
			twice.Status = taken.status
			assert.Contains(t, build.ResumeFrom(twice), "/"+string(test.want)+"?")
		})
	}
}
