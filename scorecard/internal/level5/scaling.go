package level5

import (
	"context"
	"fmt"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/lab"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/suite"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/training"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/verdict"
)

const scalingTest = "level5-scaling"

func scaling() suite.Test {
	return suite.Test{
		Name:     scalingTest,
		Suite:    Suite,
		Question: "Can an autoscaler change the number of workers of an elastic TrainingJob through its scale subresource while it trains, without losing what it has learnt?",
		Patience: training.Patience,
		Run:      scales,
	}
}

func scales(ctx context.Context, l *lab.Lab) error {
	job, err := training.Example(l, "scaling")
	if err != nil {
		return err
	}
	training.Checkpoints(job, 1)
	training.Slow(job, 24, 100*time.Millisecond)
	job.Spec.NumWorkers, job.Spec.Elastic = 2, &mlv1.Elastic{MinWorkers: 1, MaxWorkers: 2}
	if err := training.Start(ctx, l, scalingTest, job); err != nil {
		return err
	}
	saved, err := training.Reach(ctx, l, job, "has a checkpoint", training.Saved(1))
	if err != nil {
		return err
	}
	scale := &autoscalingv1.Scale{}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":1}}`))
	if err := l.SubResource("scale").Patch(ctx, saved, patch, client.WithSubResourceBody(scale)); err != nil {
		return fmt.Errorf("scale TrainingJob %s: %w", job.Name, err)
	}
	l.Logf("scaled TrainingJob %s from 2 workers to 1", job.Name)

	_, err = training.Reach(ctx, l, job, "runs with 1 worker", func(now *mlv1.TrainingJob) bool {
		return now.Status.State == mlv1.StateRunning && now.Status.Workers != nil && now.Status.Workers.Total == 1 && now.Status.Workers.Active == 1
	})
	if err != nil {
		return err
	}
	done, err := training.Reach(ctx, l, job, "is Completed", training.In(mlv1.StateCompleted))
	if err != nil {
		return err
	}
	if done.Status.Workers.Succeeded != 1 {
		return verdict.Failf("%d workers completed TrainingJob %s, want 1", done.Status.Workers.Succeeded, job.Name)
	}
	return training.WentOnFrom(ctx, l, done, saved.Status.Checkpoint)
}
