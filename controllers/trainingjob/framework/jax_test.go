package framework

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
)

func TestEnvironmentOfJAX(t *testing.T) {
	topology := Topology{Workers: 3, GPUsPerWorker: 8, MasterAddress: "a-training-0.a-headless", MasterPort: 29500}
	assert.Empty(t, cmp.Diff([]corev1.EnvVar{
		{Name: "JAX_COORDINATOR_ADDRESS", Value: "a-training-0.a-headless:29500"},
		{Name: "JAX_NUM_PROCESSES", Value: "3"},
		ReplicaIndex("JAX_PROCESS_ID"),
	}, jax.Env(topology)))
}

func TestAnImageIsNeededForJAX(t *testing.T) {
	assert.Nil(t, jax.Check(Request{Image: "jax"}))
	assert.ErrorContains(t, jax.Check(Request{}), "spec.image: is missing: the operator's training worker has no JAX")
}
