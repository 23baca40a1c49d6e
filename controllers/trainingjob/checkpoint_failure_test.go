package trainingjob

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/report"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

func TestARestoreThatFailsIsNoFailureOfTheTraining(t *testing.T) {
	job := builders.TrainingJob("bert").Checkpoints().ResumeFrom("/run").Obj()
	job.Spec.FailurePolicy.NonRetryableExitCodes = nil
	workers := builders.Workers(job).Obj()
	failing := func(code int32, message string) desired {
		pod := builders.Pod(workers, 0).InitEnded(report.RestoreContainer, code, message).FailedToInit().Obj()
		return plan(see(job, workers, pod))
	}
	problem := &report.Problem{Reason: report.ReasonCheckpointNotFound, Message: "/checkpoints/run has no valid checkpoint", Since: builders.Noon}

	none := failing(65, said(t, report.Report{Phase: report.PhaseDone, Problem: problem}))
	assert.Equal(t, mlv1.StateFailed, none.status.State, "to try again is of no use")
	assert.Equal(t, reasons.CheckpointNotFound, none.status.Reason)
	assert.Equal(t, "worker 0 (pod bert-training-0-a0) found no checkpoint to resume from: /checkpoints/run has no valid checkpoint; correct spec.checkpoint.resumeFrom in a new job", none.status.FailureReason)

	other := failing(1, "panic: nil map")
	assert.Equal(t, mlv1.StateRestarting, other.status.State)
	assert.Equal(t, reasons.RestoreFailed, other.status.Reason)
	assert.Equal(t, "the container checkpoint-restore of worker 0 (pod bert-training-0-a0) ended with exit code 1: panic: nil map", other.status.FailureReason)
}

func TestAStorageThatDoesNotAnswerUsesUpNoBackoffLimit(t *testing.T) {
	job := builders.TrainingJob("bert").InStorage(builders.S3Storage()).Workers(2).BackoffLimit(0).ResumeFrom("latest").Obj()
	workers := builders.Workers(job).Obj()
	gaveUp := builders.Pod(workers, 1).Failed(podend.ExitPeerLost).Obj()
	o := see(job, workers, builders.Pod(workers, 0).At("10.0.0.10").InitRunning(report.RestoreContainer).Obj(), gaveUp).after(podend.CauseDelay)
	problem := &report.Problem{Reason: report.ReasonStorageUnreachable, Message: "minio:9000 does not answer", Since: builders.Noon}

	d := plan(serving(o, report.Report{Phase: report.PhaseRestoring, Problem: problem}))

	assert.Equal(t, mlv1.StateRestarting, d.status.State)
	assert.Equal(t, "StorageUnreachable", d.status.Reason)
	assert.Equal(t, int32(1), d.status.DisruptionCount, "the training has done nothing wrong")
	assert.Contains(t, d.status.FailureReason, "minio:9000 does not answer")

	assert.Equal(t, mlv1.StateFailed, plan(o).status.State, "a worker that gives up for nothing that is known has failed")
}

func TestNewsOfCheckpointsAreToldOnce(t *testing.T) {
	status := func(c *mlv1.CheckpointStatus, ready metav1.ConditionStatus, reason string) *mlv1.TrainingJobStatus {
		return &mlv1.TrainingJobStatus{State: mlv1.StateRunning, Checkpoint: c, Conditions: []metav1.Condition{
			{Type: reasons.ConditionCheckpointReady, Status: ready, Reason: reason, Message: "m"},
		}}
	}
	request := func(state mlv1.CheckpointRequestState) *mlv1.CheckpointRequest {
		return &mlv1.CheckpointRequest{ID: "now", State: state, Path: "/b", Message: "m"}
	}
	none := &mlv1.TrainingJobStatus{}
	saved := status(&mlv1.CheckpointStatus{Path: "/a", Epoch: 1}, "True", "StorageReady")
	bad := status(&mlv1.CheckpointStatus{Path: "/a", Epoch: 1}, "False", "BucketNotFound")
	more := status(&mlv1.CheckpointStatus{
		Path: "/b", Epoch: 2, RestoredFrom: "/a", RestoredAttempt: 1, Request: request(mlv1.CheckpointRequestDone),
		Skipped: []mlv1.CheckpointSkipped{{Path: "/x", Message: "truncated"}},
	}, "True", "StorageReady")
	pending := status(&mlv1.CheckpointStatus{Path: "/a", Epoch: 1, Request: request(mlv1.CheckpointRequestPending)}, "True", "StorageReady")
	failed := status(&mlv1.CheckpointStatus{Path: "/a", Epoch: 1, Request: request(mlv1.CheckpointRequestFailed)}, "True", "StorageReady")
	for name, test := range map[string]struct {
		before, after *mlv1.TrainingJobStatus
		want          []string
	}{
		"the first":                   {none, saved, []string{"Normal CheckpointSaved checkpoint of epoch 1 at /a"}},
		"the one before counts again": {more, saved, nil},
		"a problem":                   {saved, bad, []string{"Warning CheckpointProblem BucketNotFound: m"}},
		"it heals":                    {bad, saved, []string{"Normal CheckpointStorageReady m"}},
		"a request":                   {saved, pending, nil},
		"a request failed":            {pending, failed, []string{"Warning CheckpointRequestFailed request now: m"}},
		"nothing new":                 {more, more, nil},
		"a problem remains":           {bad, bad, nil},
		"a skipped one is renamed": {
			status(&mlv1.CheckpointStatus{Skipped: []mlv1.CheckpointSkipped{{Path: "/job/checkpoint-epoch-3"}}}, "True", "StorageReady"),
			status(&mlv1.CheckpointStatus{Skipped: []mlv1.CheckpointSkipped{{Path: "/job/.corrupt-checkpoint-epoch-3"}}}, "True", "StorageReady"), nil,
		},
		"much at once": {saved, more, []string{
			"Normal CheckpointSaved checkpoint of epoch 2 at /b", "Normal CheckpointRestored the training starts from /a",
			"Warning CheckpointSkipped /x cannot be used: truncated", "Normal CheckpointRequestDone the checkpoint for request now is at /b",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, n := range checkpointEvents(test.before, test.after) {
				require.Contains(t, []string{corev1.EventTypeNormal, corev1.EventTypeWarning}, n.Type)
				got = append(got, n.Type+" "+n.Reason+" "+n.Note)
			}
			assert.Equal(t, test.want, got)
		})
	}
}

func checkpointEvents(before, after *mlv1.TrainingJobStatus) []reporting.Event {
	var t teller
	t.checkpoints(before, after)
	return t
}
