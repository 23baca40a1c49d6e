package framework

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
)

func TestEnvironmentOfPyTorch(t *testing.T) {
	index := &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{
		APIVersion: "v1", FieldPath: "metadata.annotations['batch.kubernetes.io/job-completion-index']",
	}}
	want := func(processes string) []corev1.EnvVar {
		return []corev1.EnvVar{
			{Name: "MASTER_ADDR", Value: "a-training-0.a-headless"},
			{Name: "MASTER_PORT", Value: "29500"},
			{Name: "WORLD_SIZE", Value: "3"},
			{Name: "RANK", ValueFrom: index},
			{Name: "PET_NNODES", Value: "3"},
			{Name: "PET_NPROC_PER_NODE", Value: processes},
			{Name: "PET_NODE_RANK", ValueFrom: index},
			{Name: "PET_MASTER_ADDR", Value: "a-training-0.a-headless"},
			{Name: "PET_MASTER_PORT", Value: "29500"},
		}
	}
	topology := Topology{Workers: 3, MasterAddress: "a-training-0.a-headless", MasterPort: 29500}
	local := []corev1.EnvVar{{Name: "LOCAL_RANK", Value: "0"}, {Name: "LOCAL_WORLD_SIZE", Value: "1"}}
	for _, gpus := range []int32{0, 1} {
		topology.GPUsPerWorker = gpus
		assert.Empty(t, cmp.Diff(append(want("1"), local...), pyTorch.Env(topology)), "one process per worker with %d GPUs", gpus)
	}

	topology.GPUsPerWorker = 4
	assert.Empty(t, cmp.Diff(want("4"), pyTorch.Env(topology)), "torchrun starts a process per GPU and tells it its local rank")
}
