package builders

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
)

// AIJobBuilder builds an AIJob.
type AIJobBuilder struct{ job aiplatformv1alpha1.AIJob }

// AIJob begins an inference job of one pod in no queue, with the defaults that the API server fills in.
func AIJob(name string) *AIJobBuilder {
	return &AIJobBuilder{aiplatformv1alpha1.AIJob{
		ObjectMeta: stored(name),
		Spec: aiplatformv1alpha1.AIJobSpec{
			JobType: aiplatformv1alpha1.JobInference, Priority: ptr.To[int32](50), Preemptible: ptr.To(true),
			Image: "registry.example.com/infer:1",
			Gang:  aiplatformv1alpha1.Gang{Enabled: ptr.To(false), MinMembers: 1},
			RetryPolicy: aiplatformv1alpha1.RetryPolicy{
				MaxRetries: ptr.To[int32](3), BackoffMultiplier: 2,
				InitialBackoff: &metav1.Duration{Duration: 10 * time.Second}, MaxBackoff: &metav1.Duration{Duration: 10 * time.Minute},
			},
		},
	}}
}

// Namespace puts the job into a namespace.
func (b *AIJobBuilder) Namespace(namespace string) *AIJobBuilder {
	b.job.Namespace = namespace
	return b
}

// Gang gives it so many members.
func (b *AIJobBuilder) Gang(members int32) *AIJobBuilder {
	b.job.Spec.Gang.Enabled, b.job.Spec.Gang.MinMembers = ptr.To(true), members
	return b
}

// GPUs that each member needs.
func (b *AIJobBuilder) GPUs(n int64) *AIJobBuilder { return b.Limit("nvidia.com/gpu", fmt.Sprint(n)) }

// Limit of a resource.
func (b *AIJobBuilder) Limit(name corev1.ResourceName, amount string) *AIJobBuilder {
	return b.resources(&corev1.ResourceRequirements{Limits: corev1.ResourceList{name: resource.MustParse(amount)}})
}

// Request of a resource.
func (b *AIJobBuilder) Request(name corev1.ResourceName, amount string) *AIJobBuilder {
	return b.resources(&corev1.ResourceRequirements{Requests: corev1.ResourceList{name: resource.MustParse(amount)}})
}

func (b *AIJobBuilder) resources(more *corev1.ResourceRequirements) *AIJobBuilder {
	if all := b.job.Spec.Resources; all != nil {
		more.Limits, more.Requests = merge(all.Limits, more.Limits), merge(all.Requests, more.Requests)
	}
	b.job.Spec.Resources = more
	return b
}

// Queue names one.
func (b *AIJobBuilder) Queue(name string) *AIJobBuilder {
	b.job.Spec.QueueName = name
	return b
}

// Priority in the queue.
func (b *AIJobBuilder) Priority(priority int32) *AIJobBuilder {
	b.job.Spec.Priority = &priority
	return b
}

// Retries after the first try, the first of them after a pause.
func (b *AIJobBuilder) Retries(n int32, pause time.Duration) *AIJobBuilder {
	b.job.Spec.RetryPolicy.MaxRetries, b.job.Spec.RetryPolicy.InitialBackoff = &n, &metav1.Duration{Duration: pause}
	return b
}

// Annotation of the job.
func (b *AIJobBuilder) Annotation(key, value string) *AIJobBuilder {
	b.job.Annotations = merge(b.job.Annotations, map[string]string{key: value})
	return b
}

// Spec changes the spec.
func (b *AIJobBuilder) Spec(edit func(*aiplatformv1alpha1.AIJobSpec)) *AIJobBuilder {
	edit(&b.job.Spec)
	return b
}

// Status changes the status.
func (b *AIJobBuilder) Status(edit func(*aiplatformv1alpha1.AIJobStatus)) *AIJobBuilder {
	edit(&b.job.Status)
	return b
}

// Obj returns the job as it is stored.
func (b *AIJobBuilder) Obj() *aiplatformv1alpha1.AIJob { return b.job.DeepCopy() }

// ToCreate returns the job as a user creates it.
func (b *AIJobBuilder) ToCreate() *aiplatformv1alpha1.AIJob {
	job := b.job.DeepCopy()
	job.ObjectMeta = metav1.ObjectMeta{Name: job.Name, Namespace: job.Namespace, Annotations: job.Annotations, Labels: job.Labels}
	job.Status = aiplatformv1alpha1.AIJobStatus{}
	return job
}
