package checks

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

func TestJudge(t *testing.T) {
	completed := mlv1.TrainingJobStatus{
		State: mlv1.StateCompleted, Phase: mlv1.PhaseSucceeded, Progress: "100%", CurrentEpoch: 10, TotalEpochs: 10,
		Workers: &mlv1.WorkersStatus{Total: 2, Succeeded: 2}, Metrics: map[string]float64{"loss": 0.1},
		StartTime: ptr.To(metav1.NewTime(builders.Noon)), CompletionTime: ptr.To(metav1.NewTime(builders.Noon)),
	}
	tests := map[string]struct {
		change func(*mlv1.TrainingJobStatus)
		want   string
	}{
		"a job that has trained":     {change: func(*mlv1.TrainingJobStatus) {}},
		"another phase":              {func(s *mlv1.TrainingJobStatus) { s.Phase = mlv1.PhaseRunning }, `status.phase is "Running"`},
		"not all epochs":             {func(s *mlv1.TrainingJobStatus) { s.CurrentEpoch = 9 }, "epoch 9 of 10"},
		"no epochs at all":           {func(s *mlv1.TrainingJobStatus) { s.CurrentEpoch, s.TotalEpochs = 0, 0 }, "epoch 0 of 0"},
		"not all of the progress":    {func(s *mlv1.TrainingJobStatus) { s.Progress = "99%" }, `progress "99%"`},
		"a worker that took no part": {func(s *mlv1.TrainingJobStatus) { s.Workers.Succeeded = 1 }, "want 2 that succeeded"},
		"no loss":                    {func(s *mlv1.TrainingJobStatus) { s.Metrics = nil }, "no loss"},
		"no time of its end":         {func(s *mlv1.TrainingJobStatus) { s.CompletionTime = nil }, "completionTime is missing"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			job := builders.TrainingJob("digits").Workers(2).Obj()
			job.Status = *completed.DeepCopy()
			test.change(&job.Status)

			err := errors.Join(missingInCompleted(job)...)

			if test.want == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, test.want)
			}
		})
	}
}
