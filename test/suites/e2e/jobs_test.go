//go:build e2e

package e2e

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// jobBuilder builds TrainingJobs that really train on a small machine.
type jobBuilder struct{ job *mlv1.TrainingJob }

// digits is a job of two workers that learns the digits, with a checkpoint after every epoch.
func digits(namespace, name string) *jobBuilder {
	return &jobBuilder{&mlv1.TrainingJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: mlv1.TrainingJobSpec{
			Model: "cnn", Dataset: "digits", NumWorkers: 2, GPUsPerWorker: ptr.To[int32](0),
			Hyperparameters: &mlv1.Hyperparameters{
				Epochs: ptr.To[int32](8), BatchSize: ptr.To[int32](32), LearningRate: ptr.To(0.003), Optimizer: "adamw",
			},
			Resources: &corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("256Mi")},
			},
			Checkpoint: &mlv1.Checkpoint{
				Frequency: 1, Retention: 3,
				Storage: mlv1.CheckpointStorage{Type: mlv1.StoragePVC, Size: ptr.To(resource.MustParse("1Gi"))},
			},
		},
	}}
}

// alone has one worker do the work of both: for what does not depend on others, at half the cost.
func (b *jobBuilder) alone() *jobBuilder {
	b.job.Spec.NumWorkers, b.job.Spec.Hyperparameters.BatchSize = 1, ptr.To[int32](64)
	return b
}

// fullSpeed is the file in a worker that ends its pace.
const fullSpeed = "/tmp/full-speed"

// pace makes every step take at least this long, so that a test has the time to interfere, until the test only waits for
// the end (see completes).
func (b *jobBuilder) pace(step time.Duration) *jobBuilder {
	return b.env("STEP_DELAY_SECONDS", strconv.FormatFloat(step.Seconds(), 'f', -1, 64)).env("STEP_DELAY_UNTIL", fullSpeed)
}

func (b *jobBuilder) env(name, value string) *jobBuilder {
	b.job.Spec.Env = append(b.job.Spec.Env, corev1.EnvVar{Name: name, Value: value})
	return b
}

func (b *jobBuilder) image(image string) *jobBuilder {
	b.job.Spec.Image = image
	return b
}

func (b *jobBuilder) gpus(perWorker int32) *jobBuilder {
	b.job.Spec.GPUsPerWorker = ptr.To(perWorker)
	return b
}

// killable runs the worker below a shell, so that it can be killed from inside the container: the kernel lets
// nothing in a container kill its first process.
func (b *jobBuilder) killable() *jobBuilder {
	b.job.Spec.Command = []string{"/bin/sh", "-c"}
	b.job.Spec.Args = []string{`/usr/bin/python3 -m training_worker & echo $! >/tmp/worker.pid; trap 'kill -TERM $(cat /tmp/worker.pid)' TERM; wait $!; code=$?; wait; exit $code`}
	return b
}

func (b *jobBuilder) obj() *mlv1.TrainingJob { return b.job }
