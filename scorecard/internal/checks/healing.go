package checks

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/cluster"
)

func healing(ctx context.Context, env *cluster.Env) error {
	job, err := startJob(ctx, env, "healing", saveEvery(1), slow(24))
	if err != nil {
		return err
	}
	saved, err := reachCheckpoint(ctx, env, job)
	if err != nil {
		return err
	}
	if err := killLastReplica(ctx, env, saved); err != nil {
		return err
	}
	_, err = reach(ctx, env, job, "restarts", func(now *mlv1.TrainingJob) bool { return now.Status.RestartCount > 0 })
	if err != nil {
		return err
	}
	done, err := reachState(ctx, env, job, mlv1.StateCompleted)
	if err != nil {
		return err
	}
	if done.Status.RestartCount != 1 || done.Status.FailureReason == "" {
		return cluster.Failf("the loss of one worker caused %d restarts with the reason %q; want 1 with a reason", done.Status.RestartCount, done.Status.FailureReason)
	}
	return ContinuedFrom(ctx, env, done, saved.Status.Checkpoint)
}

// killLastReplica deletes the worker of the last replica without a grace period, so that it cannot save anything.
func killLastReplica(ctx context.Context, env *cluster.Env, job *mlv1.TrainingJob) error {
	workers, err := workersOf(ctx, env, job)
	if err != nil {
		return err
	}
	replica := fmt.Sprint(job.Spec.NumWorkers - 1)
	pod, ok := workers[replica]
	if !ok {
		return cluster.Failf("TrainingJob %s runs without a pod of replica %s", job.Name, replica)
	}
	if err := env.Delete(ctx, &pod, client.GracePeriodSeconds(0)); err != nil {
		return fmt.Errorf("delete pod %s: %w", pod.Name, err)
	}
	env.Logf("killed pod %s", pod.Name)
	return nil
}
