package trainingjob

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/report"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// asking is a job with the annotation.
func asking(job *mlv1.TrainingJob, value string) *mlv1.TrainingJob {
	job.Annotations = map[string]string{mlv1.AnnotationCheckpointNow: value}
	return job
}

func TestACheckpointOnRequest(t *testing.T) {
	job := asking(runningJob(t, builders.TrainingJob("bert").Checkpoints()), "before-lunch")
	workers := builders.Workers(job).Obj()
	o := see(job, workers, builders.Pod(workers, 0).Running().InitRunning(report.AgentContainer).Obj())
	with := func(request report.Request) observed {
		return serving(o, report.Report{Phase: report.PhaseSyncing, Request: &request})
	}

	first := plan(o)
	assert.Equal(t, "before-lunch", first.ask)
	assert.Equal(t, mlv1.CheckpointRequestPending, first.status.Checkpoint.Request.State)
	job.Status = first.status

	assert.Equal(t, "before-lunch", plan(with(report.Request{ID: "an earlier one", State: report.RequestDone})).ask)
	assert.Equal(t, "before-lunch", plan(with(report.Request{ID: "before-lunch", State: report.RequestPending})).ask, "its outcome is waited for")

	done := plan(with(report.Request{ID: "before-lunch", State: report.RequestDone, Path: "/checkpoints/bert/uid-of-bert/checkpoint-step-5"}))
	assert.Empty(t, done.ask)
	want := &mlv1.CheckpointRequest{ID: "before-lunch", State: mlv1.CheckpointRequestDone, Path: "/bert/uid-of-bert/checkpoint-step-5"}
	assert.Empty(t, cmp.Diff(want, done.status.Checkpoint.Request))

	failed := plan(with(report.Request{ID: "before-lunch", State: report.RequestFailed, Message: "no space left"}))
	assert.Empty(t, cmp.Diff(&mlv1.CheckpointRequest{ID: "before-lunch", State: mlv1.CheckpointRequestFailed, Message: "no space left"},
		failed.status.Checkpoint.Request))

	job.Status = done.status
	again := plan(o)
	assert.Empty(t, again.ask, "a value is one request, also for a manager that has just started")
	assert.Empty(t, cmp.Diff(want, again.status.Checkpoint.Request))

	asking(job, "after-lunch")
	assert.Equal(t, "after-lunch", plan(o).ask, "a new value is a new one")
}

func TestARequestThatCannotBeServed(t *testing.T) {
	suspended := runningJob(t, builders.TrainingJob("bert").Checkpoints())
	suspended.Spec.Suspend = ptr.To(true)
	complete := runningJob(t, builders.TrainingJob("bert").Checkpoints())
	complete.Status.State = mlv1.StateCompleted
	for name, test := range map[string]struct {
		job     *mlv1.TrainingJob
		state   mlv1.CheckpointRequestState
		message string
	}{
		"no checkpoints":       {runningJob(t, builders.TrainingJob("bert")), mlv1.CheckpointRequestFailed, "keeps no checkpoints"},
		"the job has ended":    {complete, mlv1.CheckpointRequestFailed, "the job ended before"},
		"the job is suspended": {suspended, mlv1.CheckpointRequestPending, "waits until the training runs"},
		"the job is held":      {builders.TrainingJob("bert").Checkpoints().ResumeFrom("other").Obj(), mlv1.CheckpointRequestPending, "waits until the training runs"},
	} {
		t.Run(name, func(t *testing.T) {
			d := plan(see(asking(test.job, "now"), nil))
			assert.Empty(t, d.ask)
			assert.Equal(t, test.state, d.status.Checkpoint.Request.State)
			assert.Contains(t, d.status.Checkpoint.Request.Message, test.message)
		})
	}
}

func TestAnyValueOfTheAnnotationIsARequest(t *testing.T) {
	job := builders.TrainingJob("bert").Obj()
	assert.Empty(t, requestID(job))
	assert.Equal(t, "2030-01-02T12:00:00Z", requestID(asking(job, "2030-01-02T12:00:00Z")))
	odd := requestID(asking(job, "two\nlines"))
	assert.Len(t, odd, 64, "it stands for a value that fits into no file's line")
	assert.NotEqual(t, odd, requestID(asking(job, "two lines")))
}
