// Package builders makes API objects for tests, in chains such as builders.TrainingJob("x").Workers(2).Obj().
package builders

import (
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// Namespace is where built objects are unless they are told otherwise.
const Namespace = "default"

// Noon is the time at which built objects were made.
var Noon = time.Date(2030, time.January, 2, 12, 0, 0, 0, time.UTC)

// stored is the metadata of an object that the API server has stored.
func stored(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, Namespace: Namespace, UID: types.UID("uid-of-" + name), Generation: 1, CreationTimestamp: metav1.NewTime(Noon),
	}
}

// TrainingJobBuilder builds a TrainingJob.
type TrainingJobBuilder struct{ job mlv1.TrainingJob }

// TrainingJob begins a job of one worker without GPUs, with the defaults that the API server fills in.
func TrainingJob(name string) *TrainingJobBuilder {
	return &TrainingJobBuilder{mlv1.TrainingJob{
		ObjectMeta: stored(name),
		Spec: mlv1.TrainingJobSpec{
			Model: "resnet50", Dataset: "cifar10", NumWorkers: 1, GPUsPerWorker: ptr.To[int32](0),
			Framework:  mlv1.FrameworkPyTorch,
			Monitoring: mlv1.Monitoring{Enabled: ptr.To(true), MetricsPort: 8080},
			Networking: mlv1.Networking{MasterPort: 29500},
			FailurePolicy: mlv1.FailurePolicy{
				RestartPolicy: mlv1.RestartOnFailure, BackoffLimit: ptr.To[int32](3), NonRetryableExitCodes: []int32{64, 65},
			},
			CleanupPolicy: mlv1.CleanupRunning,
		},
		Status: mlv1.TrainingJobStatus{State: mlv1.StatePending, Phase: mlv1.PhasePending},
	}}
}

// Obj returns the job, which later calls of the builder do not change.
func (b *TrainingJobBuilder) Obj() *mlv1.TrainingJob { return b.job.DeepCopy() }

// ToCreate returns the job without what the API server sets.
func (b *TrainingJobBuilder) ToCreate() *mlv1.TrainingJob {
	job := b.job.DeepCopy()
	job.UID, job.Generation, job.CreationTimestamp = "", 0, metav1.Time{}
	job.Status = mlv1.TrainingJobStatus{}
	return job
}

// Namespace puts the job into a namespace.
func (b *TrainingJobBuilder) Namespace(namespace string) *TrainingJobBuilder {
	b.job.Namespace = namespace
	return b
}

// Labels adds labels.
func (b *TrainingJobBuilder) Labels(with map[string]string) *TrainingJobBuilder {
	b.job.Labels = merge(b.job.Labels, with)
	return b
}

// Annotations adds annotations.
func (b *TrainingJobBuilder) Annotations(with map[string]string) *TrainingJobBuilder {
	b.job.Annotations = merge(b.job.Annotations, with)
	return b
}

func merge[M ~map[K]V, K comparable, V any](into, from M) M {
	if into == nil {
		return maps.Clone(from)
	}
	maps.Copy(into, from)
	return into
}

// Workers sets the number of workers.
func (b *TrainingJobBuilder) Workers(count int32) *TrainingJobBuilder {
	b.job.Spec.NumWorkers = count
	return b
}

// GPUs sets the number of GPUs per worker.
func (b *TrainingJobBuilder) GPUs(perWorker int32) *TrainingJobBuilder {
	b.job.Spec.GPUsPerWorker = ptr.To(perWorker)
	return b
}

// Suspended sets spec.suspend.
func (b *TrainingJobBuilder) Suspended() *TrainingJobBuilder {
	b.job.Spec.Suspend = ptr.To(true)
	return b
}

// TTL has the job deleted so many seconds after its end.
func (b *TrainingJobBuilder) TTL(seconds int32) *TrainingJobBuilder {
	b.job.Spec.TTLSecondsAfterFinished = ptr.To(seconds)
	return b
}

// Cleanup sets the clean-up policy.
func (b *TrainingJobBuilder) Cleanup(policy mlv1.CleanupPolicy) *TrainingJobBuilder {
	b.job.Spec.CleanupPolicy = policy
	return b
}

// Deadline sets activeDeadlineSeconds.
func (b *TrainingJobBuilder) Deadline(seconds int64) *TrainingJobBuilder {
	b.job.Spec.FailurePolicy.ActiveDeadlineSeconds = ptr.To(seconds)
	return b
}

// BackoffLimit sets the number of restarts after failures.
func (b *TrainingJobBuilder) BackoffLimit(limit int32) *TrainingJobBuilder {
	b.job.Spec.FailurePolicy.BackoffLimit = ptr.To(limit)
	return b
}

// RestartPolicy says after which failures the job is started again.
func (b *TrainingJobBuilder) RestartPolicy(policy mlv1.RestartPolicy) *TrainingJobBuilder {
	b.job.Spec.FailurePolicy.RestartPolicy = policy
	return b
}

// Elastic lets the number of workers change.
func (b *TrainingJobBuilder) Elastic(least, most int32) *TrainingJobBuilder {
	b.job.Spec.Elastic = &mlv1.Elastic{MinWorkers: least, MaxWorkers: most}
	return b
}

// Rescale sets what happens when the number of workers changes. Elastic comes before it.
func (b *TrainingJobBuilder) Rescale(policy mlv1.RescalePolicy) *TrainingJobBuilder {
	b.job.Spec.Elastic.RescalePolicy = policy
	return b
}

// Checkpoints keeps checkpoints in a claim that the operator makes.
func (b *TrainingJobBuilder) Checkpoints() *TrainingJobBuilder {
	b.job.Spec.Checkpoint = &mlv1.Checkpoint{
		Enabled: ptr.To(true), Frequency: 1, Retention: 3, Storage: mlv1.CheckpointStorage{Type: mlv1.StoragePVC},
	}
	return b
}

// Claim keeps checkpoints in a claim that exists.
func (b *TrainingJobBuilder) Claim(name string) *TrainingJobBuilder {
	b.Checkpoints().job.Spec.Checkpoint.Storage.ClaimName = name
	return b
}

// ResumeFrom names the checkpoint to start from. Checkpoints or Claim comes before it.
func (b *TrainingJobBuilder) ResumeFrom(source string) *TrainingJobBuilder {
	b.job.Spec.Checkpoint.ResumeFrom = source
	return b
}

// Spec changes the spec in any other way.
func (b *TrainingJobBuilder) Spec(change func(*mlv1.TrainingJobSpec)) *TrainingJobBuilder {
	change(&b.job.Spec)
	return b
}

// Status sets the status.
func (b *TrainingJobBuilder) Status(status mlv1.TrainingJobStatus) *TrainingJobBuilder {
	b.job.Status = status
	return b
}

// InStorage has the job keep its checkpoints in a storage.
func (b *TrainingJobBuilder) InStorage(storage mlv1.CheckpointStorage) *TrainingJobBuilder {
	return b.Checkpoints().Spec(func(s *mlv1.TrainingJobSpec) { s.Checkpoint.Storage = storage })
}

// S3Storage is a bucket on an S3-compatible server, with credentials in the Secret keys.
func S3Storage() mlv1.CheckpointStorage {
	return mlv1.CheckpointStorage{
		Type: mlv1.StorageS3, S3Bucket: "models", S3Region: "eu-west-1", S3Endpoint: "http://minio:9000", Prefix: "team a/",
		SecretRef: &mlv1.SecretReference{Name: "keys"},
	}
}
