package framework

import corev1 "k8s.io/api/core/v1"

// jax is JAX with one process per replica, which has all GPUs of its worker. Its environment is what jax.distributed.initialize() is to be
// called with. That reads JAX_COORDINATOR_ADDRESS by itself; the number of processes and the own number are its arguments num_processes
// and process_id, so the program hands these over from the variables that are customary for them.
//
// Sources: https://docs.jax.dev/en/latest/multi_process.html and
// https://docs.jax.dev/en/latest/_autosummary/jax.distributed.initialize.html.
var jax = Framework{
	Name: "JAX", ImageExample: "python:3.12 with pip install jax",
	Env: func(topology Topology) []corev1.EnvVar {
		return []corev1.EnvVar{
			Text("JAX_COORDINATOR_ADDRESS", topology.Master()), Number("JAX_NUM_PROCESSES", topology.Workers), ReplicaIndex("JAX_PROCESS_ID"),
		}
	},
}
