// Package jax is JAX with one process per replica.
package jax

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/framework/launch"
)

// New returns the framework.
func New() launch.Framework { return jax{} }

// jax sets what jax.distributed.initialize() is to be called with. It reads JAX_COORDINATOR_ADDRESS by itself; the number
// of processes and the own number are its arguments num_processes and process_id, so the program hands these over from
// the variables that are customary for them. A process has all GPUs of its worker.
//
// Sources: https://docs.jax.dev/en/latest/multi_process.html and
// https://docs.jax.dev/en/latest/_autosummary/jax.distributed.initialize.html.
type jax struct{ launch.Plain }

// Env implements launch.Framework.
func (jax) Env(topology launch.Topology) []corev1.EnvVar {
	return []corev1.EnvVar{
		launch.Text("JAX_COORDINATOR_ADDRESS", topology.Master()),
		launch.Number("JAX_NUM_PROCESSES", topology.Workers),
		launch.ReplicaIndex("JAX_PROCESS_ID"),
	}
}

// HasDefaultImage implements launch.Framework.
func (jax) HasDefaultImage() bool { return false }

// Check implements launch.Framework.
func (jax) Check(request launch.Request) *launch.Problem {
	return launch.NeedImage(request, "JAX", "python:3.12 with pip install jax")
}
