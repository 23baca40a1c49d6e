package builders

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
)

// SpotInstanceJobBuilder builds a SpotInstanceJob.
type SpotInstanceJobBuilder struct{ job spotv1alpha1.SpotInstanceJob }

// SpotInstanceJob begins a job of two replicas of one container, without checkpoints, with the defaults that the API
// server fills in.
func SpotInstanceJob(name string) *SpotInstanceJobBuilder {
	return &SpotInstanceJobBuilder{spotv1alpha1.SpotInstanceJob{
		ObjectMeta: stored(name),
		Spec: spotv1alpha1.SpotInstanceJobSpec{
			Replicas: ptr.To[int32](2),
			JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever,
				Containers:    []corev1.Container{{Name: "train", Image: "registry.example.com/train:1", Command: []string{"train"}}},
			}}}},
		},
	}}
}

// Namespace puts the job into a namespace.
func (b *SpotInstanceJobBuilder) Namespace(namespace string) *SpotInstanceJobBuilder {
	b.job.Namespace = namespace
	return b
}

// Replicas sets their number.
func (b *SpotInstanceJobBuilder) Replicas(n int32) *SpotInstanceJobBuilder {
	b.job.Spec.Replicas = ptr.To(n)
	return b
}

// Checkpoints has one taken of each replica every so often.
func (b *SpotInstanceJobBuilder) Checkpoints(every time.Duration) *SpotInstanceJobBuilder {
	b.job.Spec.CheckpointConfig = &spotv1alpha1.CheckpointConfig{
		CheckpointImageRepo: "registry.example.com:5000/team/checkpoints", Retention: 3, CheckpointInterval: metav1.Duration{Duration: every},
	}
	return b
}

// On names a SpotInstanceVM.
func (b *SpotInstanceJobBuilder) On(vm string) *SpotInstanceJobBuilder {
	b.job.Spec.SpotInstanceVMRef = &spotv1alpha1.SpotInstanceVMReference{Name: vm}
	return b
}

// Template edits the Job of the replicas.
func (b *SpotInstanceJobBuilder) Template(edit func(*batchv1.JobSpec)) *SpotInstanceJobBuilder {
	edit(&b.job.Spec.JobTemplate.Spec)
	return b
}

// Spec edits the spec.
func (b *SpotInstanceJobBuilder) Spec(edit func(*spotv1alpha1.SpotInstanceJobSpec)) *SpotInstanceJobBuilder {
	edit(&b.job.Spec)
	return b
}

// Obj returns the job, which later calls of the builder do not change.
func (b *SpotInstanceJobBuilder) Obj() *spotv1alpha1.SpotInstanceJob { return b.job.DeepCopy() }

// ToCreate returns the job without what the API server sets.
func (b *SpotInstanceJobBuilder) ToCreate() *spotv1alpha1.SpotInstanceJob {
	job := b.Obj()
	job.UID, job.Generation, job.CreationTimestamp = "", 0, metav1.Time{}
	return job
}
