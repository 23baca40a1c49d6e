package checks

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/cluster"
)

// startJob creates a TrainingJob from the bundle's example, after the changes. It is deleted after the test, and so is the
// claim with its checkpoints.
func startJob(env *cluster.Env, name string, changes ...func(*mlv1.TrainingJob)) *mlv1.TrainingJob {
	example := env.Example("TrainingJob", name)
	job := &mlv1.TrainingJob{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(example.Object, job, true); err != nil {
		env.Failf("the example of a TrainingJob does not fit its API: %v", err)
	}
	for _, change := range changes {
		change(job)
	}
	env.Adopt(checkpointClaim(job))
	env.Create(job)
	return job
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
	job.Spec.Suspend = ptr.To(true)
}

func checkpointClaim(job *mlv1.TrainingJob) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: job.Name + "-checkpoints", Namespace: job.Namespace},
	}
}

// readClaim returns the claim with the job's checkpoints. Its absence is a Failure.
func readClaim(env *cluster.Env, job *mlv1.TrainingJob) *corev1.PersistentVolumeClaim {
	found := checkpointClaim(job)
	err := env.Get(env.Context, client.ObjectKeyFromObject(found), found)
	if apierrors.IsNotFound(err) {
		env.Failf("PersistentVolumeClaim %s does not exist", found.Name)
	}
	env.Checkf(err, "read PersistentVolumeClaim %s", found.Name)
	return found
}

func reachState(env *cluster.Env, job *mlv1.TrainingJob, state mlv1.State) *mlv1.TrainingJob {
	return reach(env, job, "is "+string(state), func(now *mlv1.TrainingJob) bool { return now.Status.State == state })
}

func reachCheckpoint(env *cluster.Env, job *mlv1.TrainingJob) *mlv1.TrainingJob {
	return reach(env, job, "has a checkpoint", func(now *mlv1.TrainingJob) bool {
		return now.Status.State == mlv1.StateRunning && now.Status.Checkpoint != nil && now.Status.Checkpoint.Epoch >= 1
	})
}

// reach waits until the check holds for the job, and returns the job as it is then. A job that fails, or completes before
// the check holds, is a Failure at once.
func reach(env *cluster.Env, job *mlv1.TrainingJob, what string, check func(*mlv1.TrainingJob) bool) *mlv1.TrainingJob {
	last := &mlv1.TrainingJob{}
	seen := ""
	err := env.Until(env.Context, "TrainingJob "+job.Name+" "+what, func(ctx context.Context) (bool, error) {
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
		env.Check(fmt.Errorf("%w; last seen: %s", err, summary(last)))
	}
	return last
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
func changeSpec(env *cluster.Env, job *mlv1.TrainingJob, spec string) {
	err := env.Patch(env.Context, job.DeepCopy(), specPatch(spec))
	if apierrors.IsInvalid(err) {
		env.Failf("the API server refuses the change %s: %v", spec, err)
	}
	env.Checkf(err, "change the spec of TrainingJob %s to %s", job.Name, spec)
	env.Logf("changed the spec of TrainingJob %s: %s", job.Name, spec)
}

func specPatch(spec string) client.Patch {
	return client.RawPatch("application/merge-patch+json", []byte(`{"spec":`+spec+`}`))
}

// workersOf returns the pods of the job's newest attempt that are not being deleted, by replica.
func workersOf(env *cluster.Env, job *mlv1.TrainingJob) map[string]corev1.Pod {
	var all corev1.PodList
	err := env.List(env.Context, &all, client.InNamespace(job.Namespace), client.MatchingLabels{mlv1.LabelTrainingJob: job.Name})
	env.Checkf(err, "list the workers of TrainingJob %s", job.Name)
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
	return attempts[newest]
}
