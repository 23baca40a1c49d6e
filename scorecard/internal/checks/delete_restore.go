package checks

import (
	"context"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/cluster"
)

func deleteRestore(ctx context.Context, env *cluster.Env) error {
	job, err := startJob(ctx, env, "restore", saveEvery(1), slow(24))
	if err != nil {
		return err
	}
	saved, err := reachCheckpoint(ctx, env, job)
	if err != nil {
		return err
	}
	claim, err := readClaim(ctx, env, job)
	if err != nil {
		return err
	}

	if err := env.Remove(ctx, job); err != nil {
		return err
	}
	env.Logf("deleted TrainingJob %s", job.Name)
	kept, err := readClaim(ctx, env, job)
	if err != nil {
		return err
	}
	if kept.UID != claim.UID || kept.DeletionTimestamp != nil {
		return cluster.Failf("PersistentVolumeClaim %s did not outlive TrainingJob %s", claim.Name, job.Name)
	}

	again, err := startJob(ctx, env, "restore", saveEvery(1), slow(24), func(again *mlv1.TrainingJob) {
		again.Name = job.Name
		again.Spec.Checkpoint.ResumeFrom = "latest"
	})
	if err != nil {
		return err
	}
	return completesFrom(ctx, env, again, saved.Status.Checkpoint)
}
