package trainingjob

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/training/progress"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

func policyOf(change func(*mlv1.SuccessPolicy)) *builders.TrainingJobBuilder {
	return builders.TrainingJob("bert").Workers(2).Spec(func(spec *mlv1.TrainingJobSpec) {
		spec.SuccessPolicy = &mlv1.SuccessPolicy{}
		change(spec.SuccessPolicy)
	})
}

// reporting is what is observed while all workers run and replica 0 reports.
func withFigures(job *mlv1.TrainingJob, epoch int32, metric string, value float64) observed {
	o := see(job, builders.Workers(job).Obj(), runningPods(job, 0)...)
	o.read.Figures, o.read.Time = &progress.Figures{Epoch: epoch, Metrics: map[string]float64{metric: value}}, builders.Noon
	return o
}

func TestTheTargetIsSeenInTheFiguresThatAreRead(t *testing.T) {
	least := func(p *mlv1.SuccessPolicy) {
		p.TargetMetric = &mlv1.TargetMetric{Name: "loss", Value: ptr.To(0.1), Mode: "min"}
	}
	exact := func(p *mlv1.SuccessPolicy) { p.TargetAccuracy = ptr.To(0.95) }
	named := func(p *mlv1.SuccessPolicy) { p.TargetMetric = &mlv1.TargetMetric{Name: "f1", Value: ptr.To(0.5)} }
	for name, test := range map[string]struct {
		policy  func(*mlv1.SuccessPolicy)
		metric  string
		value   float64
		message string // empty when the training goes on
	}{
		"accuracy too low":                          {exact, "accuracy", 0.949, ""},
		"accuracy just reached":                     {exact, "accuracy", 0.95, "accuracy 0.95 is at least 0.95"},
		"another metric":                            {exact, "loss", 0.99, ""},
		"a loss too high":                           {least, "loss", 0.11, ""},
		"a loss that is reached":                    {least, "loss", 0.09, "loss 0.09 is at most 0.1"},
		"larger is better when the mode is not set": {named, "f1", 0.51, "f1 0.51 is at least 0.5"},
	} {
		t.Run(name, func(t *testing.T) {
			job := runningJob(t, policyOf(test.policy))
			d := plan(withFigures(job, 3, test.metric, test.value))
			assert.Equal(t, mlv1.StateRunning, d.status.State)
			assert.Empty(t, d.delete, "the workers may end by themselves first")
			ends := stoppingCondition(&d.status)
			if test.message == "" {
				assert.Nil(t, ends)
				return
			}
			require.NotNil(t, ends)
			assert.Equal(t, reasons.TargetReached, ends.Reason)
			assert.Equal(t, test.message, ends.Message)
			assert.Equal(t, selfEnd, d.again)
		})
	}
}

func TestWorkersThatDoNotKnowTheTargetAreStopped(t *testing.T) {
	job := runningJob(t, policyOf(func(p *mlv1.SuccessPolicy) { p.TargetAccuracy = ptr.To(0.9) }).Checkpoints())
	workers := builders.Workers(job).Obj()
	job.Status = plan(withFigures(job, 3, "accuracy", 0.93)).status

	// The figures were in the memory of a manager that is gone: what it decided stands in the status.
	due := plan(see(job, workers, runningPods(job, 0)...).after(selfEnd))
	assert.Equal(t, []string{"Job bert-training, attempt 0"}, outlineOf(due).Delete)
	assert.Equal(t, mlv1.StateRunning, due.status.State)

	job.Status = due.status
	saving := plan(see(job, nil, builders.Pod(workers, 0).Failed(143).Obj(), builders.Pod(workers, 1).Running().Deleting(2*time.Minute).Obj()).after(time.Minute))
	assert.Equal(t, mlv1.StateRunning, saving.status.State)

	job.Status = saving.status
	gone := see(job, nil, builders.Pod(workers, 1).Failed(143).Obj()).after(time.Minute)
	gone.final = saying(workers, lastWordsOfEpoch7)
	ended := plan(gone)
	lookingLike(t, outline{
		State: mlv1.StateCompleted, Reason: reasons.TargetReached, Workers: mlv1.WorkersStatus{Total: 2},
		Conditions: conditions{
			"Admitted": admitted, "CheckpointReady": "True StorageReady", "Initialized": "True TargetReached",
			"Running": "False TargetReached", "Complete": "True TargetReached", "Stopping": "False TargetReached",
		},
	}, ended)
	assert.Equal(t, int32(7), ended.status.Checkpoint.Epoch, "the last checkpoint is told")
	assert.Equal(t, "accuracy 0.93 is at least 0.9", meta.FindStatusCondition(ended.status.Conditions, reasons.ConditionComplete).Message)
}

func TestWorkersThatEndByThemselvesAtTheTargetAreNotStopped(t *testing.T) {
	job := runningJob(t, policyOf(func(p *mlv1.SuccessPolicy) { p.TargetAccuracy = ptr.To(0.9) }))
	workers := builders.Workers(job).Obj()
	job.Status = plan(withFigures(job, 3, "accuracy", 0.93)).status
	for name, words := range map[string]string{
		"and say so":      `{"reason": "TargetReached", "message": "accuracy 0.93 is at least 0.9"}`,
		"and say nothing": "",
	} {
		t.Run(name, func(t *testing.T) {
			d := plan(see(job, workers, builders.Pod(workers, 0).Succeeded(words).Obj(), builders.Pod(workers, 1).Succeeded("").Obj()).after(time.Second))
			assert.Equal(t, mlv1.StateCompleted, d.status.State)
			assert.Equal(t, reasons.TargetReached, d.status.Reason)
			assert.Empty(t, d.delete)
			assert.Equal(t, int32(2), d.status.Workers.Succeeded)
		})
	}
}

func TestTheBestValueIsKept(t *testing.T) {
	at := func(value float64, epoch int32) *mlv1.BestStatus {
		return &mlv1.BestStatus{Metric: "m", Value: ptr.To(value), Epoch: epoch}
	}
	for name, test := range map[string]struct {
		before  *mlv1.BestStatus
		value   float64
		epoch   int32
		smaller bool
		want    *mlv1.BestStatus
	}{
		"the first":                        {nil, 0.5, 2, false, at(0.5, 2)},
		"a better one":                     {at(0.5, 2), 0.6, 3, false, at(0.6, 3)},
		"a worse one":                      {at(0.5, 2), 0.4, 3, false, at(0.5, 2)},
		"the same again is no improvement": {at(0.5, 2), 0.5, 3, false, at(0.5, 2)},
		"a smaller one where that counts":  {at(0.5, 2), 0.4, 3, true, at(0.4, 3)},
		"after the training was set back":  {at(0.5, 9), 0.4, 1, false, at(0.4, 1)},
		"of another metric":                {&mlv1.BestStatus{Metric: "old", Value: ptr.To(1.0), Epoch: 1}, 0.4, 2, false, at(0.4, 2)},
	} {
		t.Run(name, func(t *testing.T) {
			of := &mlv1.TargetMetric{Name: "m", Mode: "max"}
			if test.smaller {
				of.Mode = "min"
			}
			assert.Equal(t, test.want, best(test.before, of, test.value, test.epoch))
		})
	}
}

func TestATrainingThatNoLongerImprovesIsEnded(t *testing.T) {
	job := runningJob(t, policyOf(func(p *mlv1.SuccessPolicy) { p.EarlyStoppingPatience = ptr.To[int32](3) }))
	look := func(epoch int32, accuracy float64) *desired {
		d := plan(withFigures(job, epoch, "accuracy", accuracy))
		job.Status = d.status
		return &d
	}
	look(2, 0.5)
	look(3, 0.7)
	assert.Equal(t, &mlv1.BestStatus{Metric: "accuracy", Value: ptr.To(0.7), Epoch: 3}, job.Status.Best)
	look(5, 0.69)
	assert.Nil(t, stoppingCondition(&job.Status))
	look(6, 0.7)
	ends := stoppingCondition(&job.Status)
	require.NotNil(t, ends, "three epochs passed without a better value")
	assert.Equal(t, reasons.EarlyStopped, ends.Reason)
	assert.Equal(t, "accuracy has not improved for 3 epochs; the best was 0.7 in epoch 3", ends.Message)

	look(6, 0.71)
	assert.Nil(t, stoppingCondition(&job.Status), "it improved before it was stopped")
}

func TestWithoutASuccessPolicyNothingIsWatched(t *testing.T) {
	job := runningJob(t, builders.TrainingJob("bert").Workers(2))
	d := plan(withFigures(job, 3, "accuracy", 1))
	assert.Nil(t, d.status.Best)
	assert.Nil(t, meta.FindStatusCondition(d.status.Conditions, reasons.ConditionStopping))
}
