package trainingjob

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

const lastWordsOfEpoch7 = `{"training_epoch": 7, "training_checkpoint_path": "/checkpoints/bert/checkpoint-step-161", "training_checkpoint_epoch": 7}`

// saying is a replica 0 that ended with a termination message.
func saying(workers *batchv1.Job, message string) *corev1.Pod {
	return builders.Pod(workers, 0).Failed(143).Saying(message).Obj()
}

// The kubelet deletes a stopped pod right after it has told how the pod ended.
func TestTheCheckpointOfASuspensionIsReportedThoughThePodIsGone(t *testing.T) {
	job := runningJob(t, builders.TrainingJob("bert").Workers(2).Checkpoints())
	job.Spec.Suspend = ptr.To(true)
	workers := builders.Workers(job).Obj()
	var heard finalMessages
	heard.note(builders.Pod(workers, 1).Failed(143).Saying("not replica 0").Obj())
	require.Nil(t, heard.of(client.ObjectKeyFromObject(job)))
	heard.note(builders.Pod(workers, 0).Failed(143).Saying(lastWordsOfEpoch7).Obj())

	for name, o := range map[string]observed{
		"the Job is being deleted": see(job, workers),
		"the Job is gone too":      see(job, nil),
	} {
		t.Run(name, func(t *testing.T) {
			o.final = heard.of(client.ObjectKeyFromObject(job))
			status := plan(o).status
			assert.Equal(t, int32(7), status.CurrentEpoch)
			require.NotNil(t, status.Checkpoint)
			assert.Equal(t, int32(7), status.Checkpoint.Epoch)
		})
	}
}

func TestLastWordsOfAnotherAttemptAreNotTaken(t *testing.T) {
	job := runningJob(t, builders.TrainingJob("bert"))
	workers := builders.Workers(job).Obj()
	job.CreationTimestamp = metav1.NewTime(builders.Noon)
	suspended := job.DeepCopy()
	suspended.Status.State = mlv1.StateSuspended
	another := workers.DeepCopy()
	another.UID = "another"
	for name, test := range map[string]struct {
		o       observed
		owner   *batchv1.Job
		created metav1.Time
	}{
		"of the Job before":           {see(job, workers), another, job.CreationTimestamp},
		"of a job of the same name":   {see(job, nil), workers, metav1.NewTime(builders.Noon.Add(-time.Hour))},
		"of a job that was suspended": {see(suspended, nil), workers, job.CreationTimestamp},
	} {
		t.Run(name, func(t *testing.T) {
			test.o.final = saying(test.owner, lastWordsOfEpoch7)
			test.o.final.CreationTimestamp = test.created
			_, ok := test.o.lastReport()
			assert.False(t, ok)
		})
	}
}

func TestFarewellsKeepTheNewest(t *testing.T) {
	job := builders.TrainingJob("bert").Obj()
	ended := func(created time.Time, message string) *corev1.Pod {
		pod := builders.Pod(builders.Workers(job).Obj(), 0).Failed(1).Saying(message).Obj()
		pod.CreationTimestamp = metav1.NewTime(created)
		return pod
	}
	var heard finalMessages
	heard.note(ended(builders.Noon, "second"))
	heard.note(ended(builders.Noon.Add(-time.Minute), "first"))
	require.NotNil(t, heard.of(client.ObjectKeyFromObject(job)))
	assert.Equal(t, "second", workerProgram.Terminated(heard.of(client.ObjectKeyFromObject(job))).Message)
	heard.forget(client.ObjectKeyFromObject(job))
	assert.Nil(t, heard.of(client.ObjectKeyFromObject(job)))
}
