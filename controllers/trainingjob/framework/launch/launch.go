// Package launch is what the packages of the frameworks have in common: the process group that they join, and what
// each of them says about the workers of a job.
package launch

import (
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// ConfigFolder is where the files of a framework lie in each worker.
const ConfigFolder = "/etc/training"

// Topology is the process group that the workers form.
type Topology struct {
	// ID is a value that only readers of the job know, the same for all its workers.
	ID string
	// Workers is the number of worker replicas.
	Workers int32
	// GPUsPerWorker is 0 when training on CPUs.
	GPUsPerWorker int32
	// Hosts are the DNS names of the replicas, in their order.
	Hosts []string
	// MasterAddress is the DNS name of replica 0.
	MasterAddress string
	// MasterPort is the port at which replica 0 gathers the others.
	MasterPort int32
	// Backend of collective communication: nccl, gloo or mpi.
	Backend string
}

// Processes is the number of processes per worker that train: one for each GPU.
func (t Topology) Processes() int32 { return max(t.GPUsPerWorker, 1) }

// Master is the address and port at which replica 0 gathers the others.
func (t Topology) Master() string {
	return t.MasterAddress + ":" + strconv.Itoa(int(t.MasterPort))
}

// Program is what the container of a worker runs; both parts empty for the entry point of its image.
type Program struct {
	// Command replaces the entry point of the image.
	Command []string
	// Args are the arguments of the command, or of the entry point.
	Args []string
}

// Port is one at which a worker is reached in addition to those for metrics and for gathering.
type Port struct {
	// Name as it stands in the pod and the Services, at most 15 characters.
	Name string
	// Number is 1024 to 65535.
	Number int32
	// Master says that only replica 0 listens there, so that the Service of replica 0 has the port too.
	Master bool
}

// Problem is why a job cannot be run as its spec is.
type Problem struct {
	// Field of the job, with its path from spec.
	Field string
	// Message says what is wrong and what to do.
	Message string
}

// Error is the problem in words.
func (p Problem) Error() string { return p.Field + ": " + p.Message }

// Request is what a job itself says of how it is run.
type Request struct {
	// Image is empty when the job names none and no default was filled in.
	Image string
	// Program that the job names.
	Program Program
	// Taken are the ports that the job has for something else, by their fields.
	Taken map[string]int32
}

// Framework says how the workers of a job become one training. All of it is the same for every worker: what differs
// comes from the downward API, so that one pod template serves all.
type Framework interface {
	// Env returns the environment variables of every worker.
	Env(topology Topology) []corev1.EnvVar
	// Program returns what every worker runs, given what the job names.
	Program(named Program) Program
	// Ports are those that the workers listen at in addition to the job's own.
	Ports() []Port
	// Files are put into the ConfigFolder of every worker, by name.
	Files(topology Topology) map[string]string
	// HasDefaultImage says whether the operator's training worker knows the framework, so that a job need not name an
	// image.
	HasDefaultImage() bool
	// Check returns why a job cannot be run; nil when it can.
	Check(request Request) *Problem
}

// Plain is a framework that needs nothing but its environment. Others embed it and say what they need.
type Plain struct{}

// Env implements Framework: none.
func (Plain) Env(Topology) []corev1.EnvVar { return nil }

// Program implements Framework: what the job names.
func (Plain) Program(named Program) Program { return named }

// Ports implements Framework: none.
func (Plain) Ports() []Port { return nil }

// Files implements Framework: none.
func (Plain) Files(Topology) map[string]string { return nil }

// HasDefaultImage implements Framework: there is one.
func (Plain) HasDefaultImage() bool { return true }

// Check implements Framework: every job can be run.
func (Plain) Check(Request) *Problem { return nil }

// NeedImage is the problem of a job without an image whose framework the operator has no image for; nil when the job has
// one.
func NeedImage(request Request, framework, example string) *Problem {
	if request.Image != "" {
		return nil
	}
	return &Problem{Field: "spec.image", Message: fmt.Sprintf(
		"is missing: the operator's training worker has no %s: name an image with your program, for example one made from %s", framework, example)}
}

// FreePorts is the problem of a job that has one of the framework's ports for something else; nil when it has not.
func FreePorts(request Request, framework string, ports []Port) *Problem {
	for _, field := range sortedFields(request.Taken) {
		for _, port := range ports {
			if request.Taken[field] == port.Number {
				return &Problem{Field: field, Message: fmt.Sprintf(
					"%d is the port %s of %s: choose another one", port.Number, port.Name, framework)}
			}
		}
	}
	return nil
}

func sortedFields(taken map[string]int32) []string {
	fields := make([]string, 0, len(taken))
	for field := range taken {
		fields = append(fields, field)
	}
	slices.Sort(fields)
	return fields
}

// ReplicaIndex is the environment variable NAME with the index of the replica, which the Job controller leaves in an
// annotation of the pod.
func ReplicaIndex(name string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{
		APIVersion: "v1", FieldPath: "metadata.annotations['batch.kubernetes.io/job-completion-index']",
	}}}
}

// Text is the environment variable NAME with the value.
func Text(name, value string) corev1.EnvVar { return corev1.EnvVar{Name: name, Value: value} }

// Number is the environment variable NAME with the number.
func Number(name string, value int32) corev1.EnvVar { return Text(name, strconv.Itoa(int(value))) }
