package trainingjob

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/workerdefaults"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

func limited(memory string) workerdefaults.Defaults {
	return workerdefaults.Defaults{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}}
}

func memoryLimit(resources *corev1.ResourceRequirements) string {
	if resources == nil {
		return ""
	}
	return resources.Limits.Memory().String()
}

func TestWorkersThatNameNoLimitGetTheInstallations(t *testing.T) {
	job := builders.TrainingJob("bert").Workers(2).Obj()
	o := see(job, nil)
	o.settings.DefaultResources = limited("8Gi")

	first := plan(o)
	assert.Empty(t, first.apply, "what the workers are made from is written first")
	require.Equal(t, "8Gi", memoryLimit(first.status.DefaultResources))
	assert.NotZero(t, first.again)
	assert.Equal(t, mlv1.StateInitializing, first.status.State)

	job.Status = first.status
	second := plan(o)
	assert.Equal(t, "16Gi", second.status.Resources.Memory.String(), "a limit is the request")
	var workers *batchv1.Job
	for _, object := range second.apply {
		if of, ok := object.(*batchv1.Job); ok {
			workers = of
		}
	}
	require.NotNil(t, workers)
	assert.Equal(t, "8Gi", memoryLimit(&workers.Spec.Template.Spec.Containers[0].Resources))

	o.settings.DefaultResources = limited("4Gi")
	o.with(workers)
	o.workers = workers
	assert.Equal(t, "8Gi", memoryLimit(plan(o).status.DefaultResources), "of workers that exist the template cannot change")
	o.workers = nil
	assert.Equal(t, "4Gi", memoryLimit(plan(o).status.DefaultResources), "those that come next")
}

func TestAJobThatNamesItsLimitKeepsIt(t *testing.T) {
	job := builders.TrainingJob("bert").Spec(func(s *mlv1.TrainingJobSpec) {
		s.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Gi")}}
	}).Obj()
	o := see(job, nil)
	o.settings.DefaultResources = limited("8Gi")
	d := plan(o)
	assert.Nil(t, d.status.DefaultResources)
	assert.NotEmpty(t, d.apply)
}

// The webhook warns of what quotas forbid: of the pods as they will be.
func TestChildrenHaveTheInstallationsLimits(t *testing.T) {
	job := builders.TrainingJob("bert").Obj()
	for _, object := range Children(job, build.Settings{DefaultResources: limited("8Gi")}) {
		if workers, ok := object.(*batchv1.Job); ok {
			assert.Equal(t, "8Gi", memoryLimit(&workers.Spec.Template.Spec.Containers[0].Resources))
		}
	}
	assert.Nil(t, job.Status.DefaultResources)
}
