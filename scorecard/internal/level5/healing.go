package level5

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/lab"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/suite"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/training"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/verdict"
)

const healingTest = "level5-healing"

func healing() suite.Test {
	return suite.Test{
		Name:     healingTest,
		Suite:    Suite,
		Question: "Does a TrainingJob that loses a worker start again by itself from its newest checkpoint, and complete?",
		Patience: training.Patience,
		Run:      heals,
	}
}

func heals(ctx context.Context, l *lab.Lab) error {
	job, err := training.Example(l, "healing")
	if err != nil {
		return err
	}
	training.Checkpoints(job, 1)
	training.Slow(job, 24, 100*time.Millisecond)
	if err := training.Start(ctx, l, healingTest, job); err != nil {
		return err
	}
	saved, err := training.Reach(ctx, l, job, "has a checkpoint", training.Saved(1))
	if err != nil {
		return err
	}
	if err := kill(ctx, l, saved); err != nil {
		return err
	}
	_, err = training.Reach(ctx, l, job, "restarts", func(now *mlv1.TrainingJob) bool { return now.Status.RestartCount > 0 })
	if err != nil {
		return err
	}
	done, err := training.Reach(ctx, l, job, "is Completed", training.In(mlv1.StateCompleted))
	if err != nil {
		return err
	}
	if done.Status.RestartCount != 1 || done.Status.FailureReason == "" {
		return verdict.Failf("the loss of one worker made %d restarts, for the reason %q; want 1, and the reason", done.Status.RestartCount, done.Status.FailureReason)
	}
	return training.WentOnFrom(ctx, l, done, saved.Status.Checkpoint)
}

// kill ends the worker of the last replica at once, without the time to save anything.
func kill(ctx context.Context, l *lab.Lab, job *mlv1.TrainingJob) error {
	workers, err := training.Workers(ctx, l, job)
	if err != nil {
		return err
	}
	replica := fmt.Sprint(job.Spec.NumWorkers - 1)
	pod, ok := workers[replica]
	if !ok {
		return verdict.Failf("TrainingJob %s runs without a pod of replica %s", job.Name, replica)
	}
	if err := l.Delete(ctx, &pod, client.GracePeriodSeconds(0)); err != nil {
		return fmt.Errorf("delete pod %s: %w", pod.Name, err)
	}
	l.Logf("killed pod %s", pod.Name)
	return nil
}
