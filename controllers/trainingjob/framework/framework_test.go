package framework

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

func TestFrameworksOfThisVersion(t *testing.T) {
	for name, served := range map[mlv1.Framework]bool{
		mlv1.FrameworkPyTorch: true,
		// A later version serves these: until then a job that asks for them must not be run with wrong settings.
		mlv1.FrameworkTensorFlow: false, mlv1.FrameworkJAX: false, mlv1.FrameworkRay: false, mlv1.FrameworkMPI: false,
		mlv1.FrameworkXGBoost: false, "": false, "caffe": false,
	} {
		_, ok := For(name)
		assert.Equal(t, served, ok, "framework %q", name)
	}
}

func TestPyTorch(t *testing.T) {
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
	pyTorch, ok := For(mlv1.FrameworkPyTorch)
	require.True(t, ok)
	topology := Topology{Workers: 3, MasterAddress: "a-training-0.a-headless", MasterPort: 29500, Backend: "gloo"}
	local := []corev1.EnvVar{{Name: "LOCAL_RANK", Value: "0"}, {Name: "LOCAL_WORLD_SIZE", Value: "1"}}
	for _, gpus := range []int32{0, 1} {
		topology.GPUsPerWorker = gpus
		assert.Empty(t, cmp.Diff(append(want("1"), local...), pyTorch.Env(topology)), "one process per worker with %d GPUs", gpus)
	}

	topology.GPUsPerWorker = 4
	assert.Empty(t, cmp.Diff(want("4"), pyTorch.Env(topology)), "torchrun starts a process per GPU and tells it its local rank")
}
