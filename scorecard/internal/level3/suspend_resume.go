package level3

import (
	"context"
	"time"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/lab"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/suite"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/training"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/verdict"
)

const suspendTest = "level3-suspend-resume"

func suspendResume() suite.Test {
	return suite.Test{
		Name:     suspendTest,
		Suite:    Suite,
		Question: "Does suspending a TrainingJob save a checkpoint, and does the job go on from it, not from the first epoch, when it is resumed?",
		Patience: training.Patience,
		Run:      resumes,
	}
}

func resumes(ctx context.Context, l *lab.Lab) error {
	job, err := training.Example(l, "suspend")
	if err != nil {
		return err
	}
	// Only the suspension saves one before the end.
	training.Checkpoints(job, 1000)
	training.Slow(job, 24, 100*time.Millisecond)
	if err := training.Start(ctx, l, suspendTest, job); err != nil {
		return err
	}
	_, err = training.Reach(ctx, l, job, "is Running in its second epoch or later", func(now *mlv1.TrainingJob) bool {
		return now.Status.State == mlv1.StateRunning && now.Status.CurrentEpoch >= 2
	})
	if err != nil {
		return err
	}

	if err := training.Change(ctx, l, job, `{"suspend":true}`); err != nil {
		return err
	}
	suspended, err := training.Reach(ctx, l, job, "is Suspended", training.In(mlv1.StateSuspended))
	if err != nil {
		return err
	}
	saved := suspended.Status.Checkpoint
	if saved == nil || saved.Step == 0 {
		return verdict.Failf("no checkpoint was saved when TrainingJob %s was suspended", job.Name)
	}

	if err := training.Change(ctx, l, job, `{"suspend":false}`); err != nil {
		return err
	}
	done, err := training.Reach(ctx, l, job, "is Completed", training.In(mlv1.StateCompleted))
	if err != nil {
		return err
	}
	return training.WentOnFrom(ctx, l, done, saved)
}
