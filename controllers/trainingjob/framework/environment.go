package framework

import (
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// rendezvousEnv are the variables by which programs of several frameworks find one another.
func rendezvousEnv(topology Topology) []corev1.EnvVar {
	return []corev1.EnvVar{
		Text("MASTER_ADDR", topology.MasterAddress), Number("MASTER_PORT", topology.MasterPort),
		Number("WORLD_SIZE", topology.Workers), ReplicaIndex("RANK"),
	}
}

// ReplicaIndex is the environment variable NAME with the index of the replica, which the Job controller leaves in an
// annotation of the pod.
func ReplicaIndex(name string) corev1.EnvVar {
	return FromAnnotation(name, batchv1.JobCompletionIndexAnnotation)
}

// FromAnnotation is the environment variable NAME with the value of an annotation of the pod.
func FromAnnotation(name, annotation string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{
		APIVersion: "v1", FieldPath: "metadata.annotations['" + annotation + "']",
	}}}
}

// Text is the environment variable NAME with the value.
func Text(name, value string) corev1.EnvVar { return corev1.EnvVar{Name: name, Value: value} }

// Number is the environment variable NAME with the number.
func Number(name string, value int32) corev1.EnvVar { return Text(name, strconv.Itoa(int(value))) }
