package checks

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/cluster"
)

// startJob creates a TrainingJob from the bundle's example, after the changes. It is deleted after the test, and so is the
// claim with its checkpoints.
func startJob(ctx context.Context, env *cluster.Env, name string, changes ...func(*mlv1.TrainingJob)) (*mlv1.TrainingJob, error) {
	example, err := env.Example("TrainingJob", name)
	if err != nil {
		return nil, err
	}
	job := &mlv1.TrainingJob{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(example.Object, job, true); err != nil {
		return nil, cluster.Failf("the example of a TrainingJob does not fit its API: %v", err)
	}
	for _, change := range changes {
		change(job)
	}
	env.Adopt(checkpointClaim(job))
	return job, env.Create(ctx, job)
}

// slow makes the job last at least the number of epochs times that of their steps times 100 ms, so that there is time to
// interfere. The training worker that comes with the operator knows the setting.
func slow(epochs int32) func(*mlv1.TrainingJob) {
	return func(job *mlv1.TrainingJob) {
		if job.Spec.Hyperparameters == nil {
			job.Spec.Hyperparameters = &mlv1.Hyperparameters{}
		}
		job.Spec.Hyperparameters.Epochs = &epochs
		job.Spec.Env = append(job.Spec.Env, corev1.EnvVar{Name: "STEP_DELAY_SECONDS", Value: "0.1"})
	}
}

func saveEvery(epochs int32) func(*mlv1.TrainingJob) {
	return func(job *mlv1.TrainingJob) {
		if job.Spec.Checkpoint == nil {
			job.Spec.Checkpoint = &mlv1.Checkpoint{}
		}
		job.Spec.Checkpoint.Frequency = epochs
	}
}

func suspend(job *mlv1.TrainingJob) {
	suspended := true
	job.Spec.Suspend = &suspended
}

func checkpointClaim(job *mlv1.TrainingJob) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: job.Name + "-checkpoints", Namespace: job.Namespace},
	}
}

// readClaim returns the claim with the job's checkpoints. Its absence is a Failure.
func readClaim(ctx context.Context, env *cluster.Env, job *mlv1.TrainingJob) (*corev1.PersistentVolumeClaim, error) {
	found := checkpointClaim(job)
	err := env.Get(ctx, client.ObjectKeyFromObject(found), found)
	if apierrors.IsNotFound(err) {
		return nil, cluster.Failf("PersistentVolumeClaim %s does not exist", found.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("read PersistentVolumeClaim %s: %w", found.Name, err)
	}
	return found, nil
}

func reachState(ctx context.Context, env *cluster.Env, job *mlv1.TrainingJob, state mlv1.State) (*mlv1.TrainingJob, error) {
	return reach(ctx, env, job, "is "+string(state), func(now *mlv1.TrainingJob) bool { return now.Status.State == state })
}

func reachCheckpoint(ctx context.Context, env *cluster.Env, job *mlv1.TrainingJob) (*mlv1.TrainingJob, error) {
	return reach(ctx, env, job, "has a checkpoint", func(now *mlv1.TrainingJob) bool {
		return now.Status.State == mlv1.StateRunning && now.Status.Checkpoint != nil && now.Status.Checkpoint.Epoch >= 1
	})
}

// reach waits until the check holds for the job, and returns the job as it is then. A job that fails, or completes before
// the check holds, is a Failure at once.
func reach(ctx context.Context, env *cluster.Env, job *mlv1.TrainingJob, what string, check func(*mlv1.TrainingJob) bool) (*mlv1.TrainingJob, error) {
	last := &mlv1.TrainingJob{}
	seen := ""
	err := env.Until(ctx, "TrainingJob "+job.Name+" "+what, func(ctx context.Context) (bool, error) {
		if err := env.Get(ctx, client.ObjectKeyFromObject(job), last); err != nil {
			return false, err
		}
		if now := summary(last); now != seen {
			env.Logf("%s", now)
			seen = now
		}
		if check(last) {
			return true, nil
		}
		switch last.Status.State {
		case mlv1.StateFailed:
			return false, cluster.Failf("TrainingJob %s failed: %s: %s", job.Name, last.Status.Reason, last.Status.FailureReason)
		case mlv1.StateCompleted:
			return false, cluster.Failf("TrainingJob %s is Completed before it %s", job.Name, what)
		}
		return false, nil
	})
	if err != nil {
		return nil, fmt.Errorf("%w; last seen: %s", err, summary(last))
	}
	return last, nil
}

func summary(job *mlv1.TrainingJob) string {
	s := &job.Status
	line := fmt.Sprintf("TrainingJob %s is %s (%s)", job.Name, s.State, s.Reason)
	if s.Progress != "" {
		line += fmt.Sprintf(", %s, epoch %d of %d", s.Progress, s.CurrentEpoch, s.TotalEpochs)
	}
	if c := s.Checkpoint; c != nil {
		line += fmt.Sprintf(", checkpoint of epoch %d, step %d", c.Epoch, c.Step)
	}
	if s.RestartCount > 0 {
		line += fmt.Sprintf(", %d restarts", s.RestartCount)
	}
	return line
}

// changeSpec sends a merge patch of the job's spec, such as {"suspend":true}.
func changeSpec(ctx context.Context, env *cluster.Env, job *mlv1.TrainingJob, spec string) error {
	if err := env.Patch(ctx, job.DeepCopy(), specPatch(spec)); err != nil {
		if apierrors.IsInvalid(err) {
			return cluster.Failf("the API server refuses the change %s: %v", spec, err)
		}
		return fmt.Errorf("change the spec of TrainingJob %s to %s: %w", job.Name, spec, err)
	}
	env.Logf("changed the spec of TrainingJob %s: %s", job.Name, spec)
	return nil
}

func specPatch(spec string) client.Patch {
	return client.RawPatch("application/merge-patch+json", []byte(`{"spec":`+spec+`}`))
}

// workersOf returns the pods of the job's newest attempt that are not being deleted, by replica.
func workersOf(ctx context.Context, env *cluster.Env, job *mlv1.TrainingJob) (map[string]corev1.Pod, error) {
	var all corev1.PodList
	err := env.List(ctx, &all, client.InNamespace(job.Namespace), client.MatchingLabels{mlv1.LabelTrainingJob: job.Name})
	if err != nil {
		return nil, fmt.Errorf("list the workers of TrainingJob %s: %w", job.Name, err)
	}
	newest := 0
	attempts := map[int]map[string]corev1.Pod{}
	for _, pod := range all.Items {
		attempt, err := strconv.Atoi(pod.Annotations[mlv1.AnnotationAttempt])
		if err != nil || pod.DeletionTimestamp != nil {
			continue
		}
		newest = max(newest, attempt)
		if attempts[attempt] == nil {
			attempts[attempt] = map[string]corev1.Pod{}
		}
		attempts[attempt][pod.Labels[mlv1.LabelReplicaID]] = pod
	}
	return attempts[newest], nil
}
