package checks

import (
	"context"
	"encoding/json"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/cluster"
)

func completesFrom(ctx context.Context, env *cluster.Env, job *mlv1.TrainingJob, saved *mlv1.CheckpointStatus) error {
	done, err := reachState(ctx, env, job, mlv1.StateCompleted)
	if err != nil {
		return err
	}
	return ContinuedFrom(ctx, env, done, saved)
}

// ContinuedFrom checks that the workers of a finished job began at the step of the checkpoint, or later.
func ContinuedFrom(ctx context.Context, env *cluster.Env, job *mlv1.TrainingJob, saved *mlv1.CheckpointStatus) error {
	step, err := restoredStep(ctx, env, job)
	if err != nil {
		return err
	}
	env.Logf("the workers continued at step %d; the checkpoint %s was of epoch %d, step %d", step, saved.Path, saved.Epoch, saved.Step)
	if step == 0 || step < saved.Step {
		return cluster.Failf("the workers of TrainingJob %s continued at step %d although the checkpoint %s holds %d", job.Name, step, saved.Path, saved.Step)
	}
	return nil
}

// restoredStep returns the optimizer step at which the workers of a finished job continued, from the termination message of
// replica 0; 0 when they did not use a checkpoint.
func restoredStep(ctx context.Context, env *cluster.Env, job *mlv1.TrainingJob) (int64, error) {
	workers, err := workersOf(ctx, env, job)
	if err != nil {
		return 0, err
	}
	pod, ok := workers["0"]
	if !ok {
		return 0, cluster.Failf("TrainingJob %s has no pod with the label %s=0", job.Name, mlv1.LabelReplicaID)
	}
	for _, container := range pod.Status.ContainerStatuses {
		if container.State.Terminated == nil {
			continue
		}
		var message struct {
			RestoredStep *float64 `json:"training_restored_step"`
		}
		if json.Unmarshal([]byte(container.State.Terminated.Message), &message) == nil && message.RestoredStep != nil {
			return int64(*message.RestoredStep), nil
		}
	}
	return 0, cluster.Failf("the termination message of pod %s does not say at which step it continued", pod.Name)
}
