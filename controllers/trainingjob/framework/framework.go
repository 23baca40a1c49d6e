// Package framework knows what each machine-learning framework needs to form one process group of the workers of a
// training job: one file per framework.
package framework

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// ConfigFolder is where the files of a framework lie in each worker.
const ConfigFolder = "/etc/training"

// Framework says how the workers of a job become one training. All of it is the same for every worker: what differs
// comes from the downward API, so that one pod template serves all.
type Framework struct {
	// Name for messages.
	Name string
	// ImageExample says in words from which image users can make theirs; empty where the operator's training worker knows the framework,
	// so that a job need not name an image.
	ImageExample string
	// Env returns the environment variables of every worker.
	Env func(topology Topology) []corev1.EnvVar
	// Ports are those that the workers listen at in addition to the job's own.
	Ports []Port

	// launchMode is how the launcher starts the program; empty when it runs without the launcher. launchDefault is the program of a job
	// that names none.
	launchMode    string
	launchDefault []string
}

var frameworks = map[mlv1.Framework]Framework{
	mlv1.FrameworkPyTorch: pyTorch, mlv1.FrameworkTensorFlow: tensorFlow, mlv1.FrameworkJAX: jax,
	mlv1.FrameworkRay: ray, mlv1.FrameworkMPI: mpi, mlv1.FrameworkXGBoost: xgBoost,
}

// For returns the settings of a framework; none, and false, when this version cannot run it.
func For(name mlv1.Framework) (Framework, bool) {
	if known, ok := frameworks[name]; ok {
		return known, true
	}
	return Framework{Env: func(Topology) []corev1.EnvVar { return nil }}, false
}

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
}

// processes is the number of processes per worker that train: one for each GPU.
func (t Topology) processes() int32 { return max(t.GPUsPerWorker, 1) }

// Master is the address and port at which replica 0 gathers the others.
func (t Topology) Master() string { return t.MasterAddress + ":" + strconv.Itoa(int(t.MasterPort)) }

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

// HasDefaultImage says whether the operator's training worker knows the framework, so that a job need not name an image.
func (f Framework) HasDefaultImage() bool { return f.ImageExample == "" }

// Program returns what every worker runs, given what the job names: with the launcher that, and below it what the job names.
func (f Framework) Program(named Program) Program {
	if f.launchMode == "" {
		return named
	}
	program := named.Command
	if len(program) == 0 {
		program = f.launchDefault
	}
	return Program{Command: slices.Clone(launchCommand), Args: slices.Concat([]string{f.launchMode, "--"}, program, named.Args)}
}

// Files are put into the ConfigFolder of every worker, by name.
func (f Framework) Files() map[string]string {
	if f.launchMode == "" {
		return nil
	}
	return map[string]string{launcherFile: launcher}
}

// Check returns why a job cannot be run; nil when it can.
func (f Framework) Check(request Request) *Problem {
	if !f.HasDefaultImage() && request.Image == "" {
		return &Problem{Field: "spec.image", Message: fmt.Sprintf("is missing: the operator's training worker has no %s: "+
			"name an image with your program, for example one made from %s", f.Name, f.ImageExample)}
	}
	if f.launchMode != "" && len(request.Program.Command) == 0 && len(f.launchDefault) == 0 {
		return &Problem{Field: "spec.command", Message: fmt.Sprintf(
			"is missing: %s needs the program that runs on the head, for example [python, train.py]", f.launchMode)}
	}
	for _, field := range slices.Sorted(maps.Keys(request.Taken)) {
		for _, port := range f.Ports {
			if request.Taken[field] == port.Number {
				return &Problem{Field: field, Message: fmt.Sprintf("%d is the port %s of %s: choose another one", port.Number, port.Name, f.launchMode)}
			}
		}
	}
	return nil
}
