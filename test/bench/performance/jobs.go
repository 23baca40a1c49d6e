package performance

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// creators is how many clients create jobs at the same time.
const creators = 20

func jobName(i int) string { return fmt.Sprintf("job-%04d", i) }

// trainingJob is a usual job on CPUs.
func trainingJob(namespace, name string, workers int) *mlv1.TrainingJob {
	job := builders.TrainingJob(name).Namespace(namespace).Workers(int32(workers)).ToCreate()
	job.Spec.Hyperparameters = &mlv1.Hyperparameters{
		LearningRate: ptr.To(0.003), BatchSize: ptr.To[int32](32), Epochs: ptr.To[int32](10), Optimizer: "adamw",
	}
	job.Spec.Resources = &corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")},
	}
	// No server answers at the addresses of simulated pods.
	job.Spec.Monitoring = mlv1.Monitoring{Enabled: ptr.To(false)}
	return job
}

// bareJob is an Indexed Job like the one that a TrainingJob has: the same pods, under labels that the operator does not
// look for, and with the ServiceAccount that every namespace has.
func bareJob(like *batchv1.Job, name string) *batchv1.Job {
	labels := map[string]string{"bare-job": name, "barejob": name}
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels, Annotations: like.Annotations},
		Spec: batchv1.JobSpec{
			CompletionMode: like.Spec.CompletionMode, Completions: like.Spec.Completions, Parallelism: like.Spec.Parallelism,
			BackoffLimit: like.Spec.BackoffLimit, PodReplacementPolicy: like.Spec.PodReplacementPolicy,
			PodFailurePolicy: like.Spec.PodFailurePolicy, Template: *like.Spec.Template.DeepCopy(),
		},
	}
	job.Spec.Template.Labels = labels
	job.Spec.Template.Spec.ServiceAccountName, job.Spec.Template.Spec.DeprecatedServiceAccount = "", ""
	return job
}

// createAll creates objects by several clients at once.
func (c *cluster) createAll(ctx context.Context, objects []client.Object) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(creators)
	for _, object := range objects {
		group.Go(func() error {
			if err := c.client.Create(ctx, object); err != nil {
				return fmt.Errorf("create %s: %w", object.GetName(), err)
			}
			return nil
		})
	}
	return group.Wait()
}

// states counts the TrainingJobs of a namespace by state.
func (c *cluster) states(namespace string) (map[mlv1.State]int, error) {
	var list mlv1.TrainingJobList
	// Resource version 0: from the API server's memory, which costs it least.
	err := c.client.List(c.Context(), &list, client.InNamespace(namespace), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}})
	if err != nil {
		return nil, err
	}
	count := map[mlv1.State]int{}
	for i := range list.Items {
		count[list.Items[i].Status.State]++
	}
	return count, nil
}
