package kinds

import (
	"context"
	"errors"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/lab"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/suite"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/training"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/verdict"
)

// trainingJob is the test of a TrainingJob: the example really trains until it is Completed.
func trainingJob() suite.Test {
	return suite.Test{
		Name:     testName("TrainingJob"),
		Suite:    Suite,
		Question: "Does the example of TrainingJob train: is it Running, and then Completed with all of its epochs?",
		Patience: training.Patience,
		Run:      trains,
	}
}

func trains(ctx context.Context, l *lab.Lab) error {
	job, err := training.Example(l, "trainingjob")
	if err != nil {
		return err
	}
	if err := training.Start(ctx, l, testName("TrainingJob"), job); err != nil {
		return err
	}
	if _, err := training.Reach(ctx, l, job, "is Running", training.In(mlv1.StateRunning)); err != nil {
		return err
	}
	done, err := training.Reach(ctx, l, job, "is Completed", training.In(mlv1.StateCompleted))
	if err != nil {
		return err
	}
	return errors.Join(judge(done)...)
}

// judge says what a completed job's status lacks.
func judge(job *mlv1.TrainingJob) (missing []error) {
	lacks := func(format string, args ...any) { missing = append(missing, verdict.Failf(format, args...)) }
	s := &job.Status
	if s.Phase != mlv1.PhaseSucceeded {
		lacks("status.phase is %q although the job is Completed", s.Phase)
	}
	if s.Progress != "100%" || s.CurrentEpoch != s.TotalEpochs || s.TotalEpochs == 0 {
		lacks("the status says progress %q, epoch %d of %d of a completed job", s.Progress, s.CurrentEpoch, s.TotalEpochs)
	}
	if s.Workers == nil || s.Workers.Succeeded != job.Spec.NumWorkers {
		lacks("the status counts %+v workers, want %d that succeeded", s.Workers, job.Spec.NumWorkers)
	}
	if _, ok := s.Metrics["loss"]; !ok {
		lacks("status.metrics has no loss")
	}
	if s.StartTime == nil || s.CompletionTime == nil {
		lacks("status.startTime or status.completionTime is missing")
	}
	return missing
}
