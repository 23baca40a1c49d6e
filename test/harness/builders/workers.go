package builders

import (
	"math"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// WorkersBuilder builds the Indexed Job of a TrainingJob, as it is in the manager's cache.
type WorkersBuilder struct{ workers batchv1.Job }

// Workers begins the Indexed Job of a TrainingJob's first attempt.
func Workers(job *mlv1.TrainingJob) *WorkersBuilder {
	b := &WorkersBuilder{batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name: job.Name + "-training", Namespace: job.Namespace, CreationTimestamp: metav1.NewTime(Noon),
			Labels:          map[string]string{mlv1.LabelTrainingJob: job.Name, mlv1.LabelTrainingJobCompact: job.Name},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, mlv1.GroupVersion.WithKind("TrainingJob"))},
		},
		Spec: batchv1.JobSpec{Completions: ptr.To(job.Spec.NumWorkers), Parallelism: ptr.To(job.Spec.NumWorkers)},
	}}
	if elastic := job.Spec.Elastic; elastic != nil && elastic.RescalePolicy != mlv1.RescaleRestart {
		b.workers.Spec.BackoffLimitPerIndex = ptr.To[int32](math.MaxInt32)
	}
	return b.Attempt(0)
}

// Obj returns the Job, which later calls of the builder do not change.
func (b *WorkersBuilder) Obj() *batchv1.Job { return b.workers.DeepCopy() }

// Attempt makes it the Job after so many restarts.
func (b *WorkersBuilder) Attempt(restarts int) *WorkersBuilder {
	b.workers.UID = types.UID("uid-of-attempt-" + strconv.Itoa(restarts))
	b.workers.Annotations = map[string]string{mlv1.AnnotationAttempt: strconv.Itoa(restarts)}
	return b
}

// Size sets the number of pods.
func (b *WorkersBuilder) Size(count int32) *WorkersBuilder {
	b.workers.Spec.Completions, b.workers.Spec.Parallelism = ptr.To(count), ptr.To(count)
	return b
}

// Deleting has the Job deleted, though it still exists.
func (b *WorkersBuilder) Deleting() *WorkersBuilder {
	b.workers.DeletionTimestamp = ptr.To(metav1.NewTime(Noon))
	return b
}

// Condition adds a condition that is True.
func (b *WorkersBuilder) Condition(kind batchv1.JobConditionType, reason, message string) *WorkersBuilder {
	b.workers.Status.Conditions = append(b.workers.Status.Conditions, batchv1.JobCondition{
		Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message,
	})
	return b
}
