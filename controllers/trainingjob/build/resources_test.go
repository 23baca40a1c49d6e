package build

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// list is a resource list from pairs of name and quantity.

func list(pairs ...string) corev1.ResourceList {
	resources := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		resources[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return resources
}

func TestResourcesOfAWorker(t *testing.T) {
	asking := func(b *builders.TrainingJobBuilder, requests, limits corev1.ResourceList) *builders.TrainingJobBuilder {
		return b.Spec(func(s *mlv1.TrainingJobSpec) {
			s.Resources = &corev1.ResourceRequirements{Requests: requests, Limits: limits}
		})
	}
	both := func(l corev1.ResourceList) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: l, Limits: l}
	}
	tests := map[string]struct {
		job     *builders.TrainingJobBuilder
		want    corev1.ResourceRequirements
		divided bool
	}{
		"none on CPUs when nothing is asked for": {job: builders.TrainingJob("a")},
		"GPUs of gpusPerWorker":                  {job: builders.TrainingJob("a").GPUs(2), want: both(list("nvidia.com/gpu", "2"))},
		"the same GPUs said twice": {
			job:  asking(builders.TrainingJob("a").Workers(3).GPUs(2), nil, list("nvidia.com/gpu", "2", "cpu", "8")),
			want: corev1.ResourceRequirements{Requests: list("nvidia.com/gpu", "2"), Limits: list("nvidia.com/gpu", "2", "cpu", "8")},
		},
		"the whole job's GPUs are divided": {
			job:  asking(builders.TrainingJob("a").Workers(3).GPUs(2), list("memory", "1Gi"), list("nvidia.com/gpu", "6")),
			want: corev1.ResourceRequirements{Requests: list("nvidia.com/gpu", "2", "memory", "1Gi"), Limits: list("nvidia.com/gpu", "2")}, divided: true,
		},
		"the GPUs of a job of one worker are its own": {
			job: asking(builders.TrainingJob("a").GPUs(4), nil, list("nvidia.com/gpu", "4")), want: both(list("nvidia.com/gpu", "4")),
		},
		"no GPUs is said by 0 too": {
			job:  asking(builders.TrainingJob("a").Workers(2), nil, list("nvidia.com/gpu", "0")),
			want: corev1.ResourceRequirements{Limits: corev1.ResourceList{}},
		},
		"an RDMA device": {
			job:  builders.TrainingJob("a").Spec(func(s *mlv1.TrainingJobSpec) { s.Networking.RDMAEnabled = ptr.To(true) }),
			want: both(list("rdma/hca", "1")),
		},
		"an RDMA device of another name": {
			job: builders.TrainingJob("a").Spec(func(s *mlv1.TrainingJobSpec) {
				s.Networking.RDMAEnabled, s.Networking.RDMAResource = ptr.To(true), "mellanox.com/cx6"
			}),
			want: both(list("mellanox.com/cx6", "1")),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			job := test.job.Obj()
			before := job.DeepCopy()
			assert.Empty(t, cmp.Diff(test.want, WorkerResources(job)))
			assert.Equal(t, test.divided, DividesGPUs(job))
			assert.Empty(t, cmp.Diff(before, job), "the spec must not be changed")
		})
	}
}

func TestResourcesOfAllWorkers(t *testing.T) {
	job := builders.TrainingJob("a").Workers(3).GPUs(2).Spec(func(s *mlv1.TrainingJobSpec) {
		s.Resources = &corev1.ResourceRequirements{Requests: list("cpu", "500m"), Limits: list("cpu", "4", "memory", "2Gi")}
	}).Obj()

	got := Resources(job, &mlv1.ResourcesStatus{GPUUtilizationPercent: ptr.To(50.0), GPUs: 99})

	assert.Empty(t, cmp.Diff(&mlv1.ResourcesStatus{
		Workers: 3, GPUs: 6, CPU: ptr.To(resource.MustParse("1500m")), Memory: ptr.To(resource.MustParse("6Gi")),
		GPUUtilizationPercent: ptr.To(50.0),
	}, got))
}

func TestWorkersWithRDMAMayLockMemory(t *testing.T) {
	job := builders.TrainingJob("a").Spec(func(s *mlv1.TrainingJobSpec) { s.Networking.RDMAEnabled = ptr.To(true) }).Obj()
	assert.Equal(t, []corev1.Capability{"IPC_LOCK"}, ContainerSecurity(job).Capabilities.Add)
	assert.Empty(t, ContainerSecurity(builders.TrainingJob("a").Obj()).Capabilities.Add)
}
