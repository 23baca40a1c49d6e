package checks

import (
	"context"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/cluster"
)

func scaling(ctx context.Context, env *cluster.Env) error {
	job, err := startJob(ctx, env, "scaling", saveEvery(1), slow(24), func(job *mlv1.TrainingJob) {
		job.Spec.NumWorkers, job.Spec.Elastic = 2, &mlv1.Elastic{MinWorkers: 1, MaxWorkers: 2}
	})
	if err != nil {
		return err
	}
	saved, err := reachCheckpoint(ctx, env, job)
	if err != nil {
		return err
	}
	if err := env.SubResource("scale").Patch(ctx, saved, specPatch(`{"replicas":1}`), client.WithSubResourceBody(&autoscalingv1.Scale{})); err != nil {
		return fmt.Errorf("scale TrainingJob %s: %w", job.Name, err)
	}
	env.Logf("scaled TrainingJob %s from 2 workers to 1", job.Name)

	_, err = reach(ctx, env, job, "runs with 1 worker", func(now *mlv1.TrainingJob) bool {
		return now.Status.State == mlv1.StateRunning && now.Status.Workers != nil && now.Status.Workers.Total == 1 && now.Status.Workers.Active == 1
	})
	if err != nil {
		return err
	}
	done, err := reachState(ctx, env, job, mlv1.StateCompleted)
	if err != nil {
		return err
	}
	if done.Status.Workers.Succeeded != 1 {
		return cluster.Failf("%d workers completed TrainingJob %s, want 1", done.Status.Workers.Succeeded, job.Name)
	}
	return ContinuedFrom(ctx, env, done, saved.Status.Checkpoint)
}
