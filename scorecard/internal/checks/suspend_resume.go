package checks

import (
	"context"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/cluster"
)

func suspendResume(ctx context.Context, env *cluster.Env) error {
	// The only checkpoint before the end is the one that the suspension saves.
	job, err := startJob(ctx, env, "suspend", saveEvery(1000), slow(24))
	if err != nil {
		return err
	}
	_, err = reach(ctx, env, job, "is Running in its second epoch or later", func(now *mlv1.TrainingJob) bool {
		return now.Status.State == mlv1.StateRunning && now.Status.CurrentEpoch >= 2
	})
	if err != nil {
		return err
	}

	if err := changeSpec(ctx, env, job, `{"suspend":true}`); err != nil {
		return err
	}
	suspended, err := reachState(ctx, env, job, mlv1.StateSuspended)
	if err != nil {
		return err
	}
	saved := suspended.Status.Checkpoint
	if saved == nil || saved.Step == 0 {
		return cluster.Failf("no checkpoint was saved when TrainingJob %s was suspended", job.Name)
	}

	if err := changeSpec(ctx, env, job, `{"suspend":false}`); err != nil {
		return err
	}
	return completesFrom(ctx, env, job, saved)
}
