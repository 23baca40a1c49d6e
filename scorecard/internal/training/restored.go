package training

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/lab"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/verdict"
)

// WentOnFrom says whether the workers of a finished job began where the checkpoint was saved, or later.
func WentOnFrom(ctx context.Context, l *lab.Lab, job *mlv1.TrainingJob, saved *mlv1.CheckpointStatus) error {
	step, err := restoredStep(ctx, l, job)
	if err != nil {
		return err
	}
	l.Logf("the workers went on at step %d; the checkpoint %s was of epoch %d, step %d", step, saved.Path, saved.Epoch, saved.Step)
	if step == 0 || step < saved.Step {
		return verdict.Failf("the workers of TrainingJob %s went on at step %d although the checkpoint %s holds %d", job.Name, step, saved.Path, saved.Step)
	}
	return nil
}

// restoredStep is the optimizer step at which the workers of a finished job say that they went on; 0 when they began
// anew. They say so in the termination message of replica 0.
func restoredStep(ctx context.Context, l *lab.Lab, job *mlv1.TrainingJob) (int64, error) {
	workers, err := Workers(ctx, l, job)
	if err != nil {
		return 0, err
	}
	pod, ok := workers["0"]
	if !ok {
		return 0, verdict.Failf("TrainingJob %s has no pod with the label %s=0", job.Name, mlv1.LabelReplicaID)
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
	return 0, verdict.Failf("pod %s does not say in its termination message where it went on", pod.Name)
}

// Workers are the pods of the job's newest attempt that are not being deleted, by replica.
func Workers(ctx context.Context, l *lab.Lab, job *mlv1.TrainingJob) (map[string]corev1.Pod, error) {
	var all corev1.PodList
	err := l.List(ctx, &all, client.InNamespace(job.Namespace), client.MatchingLabels{mlv1.LabelTrainingJob: job.Name})
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
