package checks

import (
	"encoding/json"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/cluster"
)

// The tests of what interrupts a training, which must then go on from its checkpoint.

func suspendResume(env *cluster.Env) {
	// The only checkpoint before the end is the one that the suspension saves.
	job := startJob(env, "suspend", saveEvery(1000), slow(24))
	reach(env, job, "is Running in its second epoch or later", func(now *mlv1.TrainingJob) bool {
		return now.Status.State == mlv1.StateRunning && now.Status.CurrentEpoch >= 2
	})

	changeSpec(env, job, `{"suspend":true}`)
	saved := reachState(env, job, mlv1.StateSuspended).Status.Checkpoint
	if saved == nil || saved.Step == 0 {
		env.Failf("no checkpoint was saved when TrainingJob %s was suspended", job.Name)
	}

	changeSpec(env, job, `{"suspend":false}`)
	ContinuedFrom(env, reachState(env, job, mlv1.StateCompleted), saved)
}

func deleteRestore(env *cluster.Env) {
	job := startJob(env, "restore", saveEvery(1), slow(24))
	saved := reachCheckpoint(env, job)
	claim := readClaim(env, job)

	env.Check(env.Remove(env.Context, job))
	env.Logf("deleted TrainingJob %s", job.Name)
	if kept := readClaim(env, job); kept.UID != claim.UID || kept.DeletionTimestamp != nil {
		env.Failf("PersistentVolumeClaim %s did not outlive TrainingJob %s", claim.Name, job.Name)
	}

	again := startJob(env, "restore", saveEvery(1), slow(24), func(again *mlv1.TrainingJob) {
		again.Name = job.Name
		again.Spec.Checkpoint.ResumeFrom = "latest"
	})
	ContinuedFrom(env, reachState(env, again, mlv1.StateCompleted), saved.Status.Checkpoint)
}

func healing(env *cluster.Env) {
	job := startJob(env, "healing", saveEvery(1), slow(24))
	saved := reachCheckpoint(env, job)
	replica := fmt.Sprint(saved.Spec.NumWorkers - 1)
	pod, ok := workersOf(env, saved)[replica]
	if !ok {
		env.Failf("TrainingJob %s runs without a pod of replica %s", job.Name, replica)
	}
	// Without a grace period it cannot save anything.
	env.Checkf(env.Delete(env.Context, &pod, client.GracePeriodSeconds(0)), "delete pod %s", pod.Name)
	env.Logf("killed pod %s", pod.Name)

	reach(env, job, "restarts", func(now *mlv1.TrainingJob) bool { return now.Status.RestartCount > 0 })
	done := reachState(env, job, mlv1.StateCompleted)
	if done.Status.RestartCount != 1 || done.Status.FailureReason == "" {
		env.Failf("the loss of one worker caused %d restarts with the reason %q; want 1 with a reason", done.Status.RestartCount, done.Status.FailureReason)
	}
	ContinuedFrom(env, done, saved.Status.Checkpoint)
}

func scaling(env *cluster.Env) {
	job := startJob(env, "scaling", saveEvery(1), slow(24), func(job *mlv1.TrainingJob) {
		job.Spec.NumWorkers, job.Spec.Elastic = 2, &mlv1.Elastic{MinWorkers: 1, MaxWorkers: 2}
	})
	saved := reachCheckpoint(env, job)
	scale := client.WithSubResourceBody(&autoscalingv1.Scale{})
	env.Checkf(env.SubResource("scale").Patch(env.Context, saved, specPatch(`{"replicas":1}`), scale), "scale TrainingJob %s", job.Name)
	env.Logf("scaled TrainingJob %s from 2 workers to 1", job.Name)

	reach(env, job, "runs with 1 worker", func(now *mlv1.TrainingJob) bool {
		return now.Status.State == mlv1.StateRunning && now.Status.Workers != nil && now.Status.Workers.Total == 1 && now.Status.Workers.Active == 1
	})
	done := reachState(env, job, mlv1.StateCompleted)
	if done.Status.Workers.Succeeded != 1 {
		env.Failf("%d workers completed TrainingJob %s, want 1", done.Status.Workers.Succeeded, job.Name)
	}
	ContinuedFrom(env, done, saved.Status.Checkpoint)
}

// ContinuedFrom checks that the workers of a finished job began at the step of the checkpoint, or later.
func ContinuedFrom(env *cluster.Env, job *mlv1.TrainingJob, saved *mlv1.CheckpointStatus) {
	step := restoredStep(env, job)
	env.Logf("the workers continued at step %d; the checkpoint %s was of epoch %d, step %d", step, saved.Path, saved.Epoch, saved.Step)
	if step == 0 || step < saved.Step {
		env.Failf("the workers of TrainingJob %s continued at step %d although the checkpoint %s holds %d", job.Name, step, saved.Path, saved.Step)
	}
}

// restoredStep returns the optimizer step at which the workers of a finished job continued, from the termination message of
// replica 0; 0 when they did not use a checkpoint.
func restoredStep(env *cluster.Env, job *mlv1.TrainingJob) int64 {
	pod, ok := workersOf(env, job)["0"]
	if !ok {
		env.Failf("TrainingJob %s has no pod with the label %s=0", job.Name, mlv1.LabelReplicaID)
	}
	for _, container := range pod.Status.ContainerStatuses {
		if container.State.Terminated == nil {
			continue
		}
		var message struct {
			RestoredStep *float64 `json:"training_restored_step"`
		}
		if json.Unmarshal([]byte(container.State.Terminated.Message), &message) == nil && message.RestoredStep != nil {
			return int64(*message.RestoredStep)
		}
	}
	env.Failf("the termination message of pod %s does not say at which step it continued", pod.Name)
	return 0
}
