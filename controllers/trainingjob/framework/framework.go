// Package framework knows what each machine-learning framework needs to form one process group of the workers of a
// training job: one file per framework behind one small interface.
package framework

import (
	corev1 "k8s.io/api/core/v1"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// Topology is the process group that the workers form.
type Topology struct {
	// Workers is the number of worker replicas.
	Workers int32
	// GPUsPerWorker is 0 when training on CPUs.
	GPUsPerWorker int32
	// MasterAddress is the DNS name of replica 0.
	MasterAddress string
	// MasterPort is the port at which replica 0 gathers the others.
	MasterPort int32
	// Backend of collective communication: nccl, gloo or mpi.
	Backend string
}

// Framework hands a worker its distributed settings.
type Framework interface {
	// Env returns the environment variables of every worker. A replica's own index comes from the downward API, so
	// that one pod template serves all.
	Env(topology Topology) []corev1.EnvVar
}

// For returns the settings of a framework; false when this version cannot run it.
func For(name mlv1.Framework) (Framework, bool) {
	known, ok := frameworks[name]
	return known, ok
}

var frameworks = map[mlv1.Framework]Framework{
	mlv1.FrameworkPyTorch: pyTorch{},
}

// replicaIndex is the environment variable NAME with the index of the replica, which the Job controller leaves in an
// annotation of the pod.
func replicaIndex(name string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{
		APIVersion: "v1", FieldPath: "metadata.annotations['batch.kubernetes.io/job-completion-index']",
	}}}
}
