// Package cloud says what the operator needs from a provider of instances. Each provider has a package of its own below
// it; nothing else in the product knows one provider from another.
//
// No call waits for an instance: a call ends when the provider has taken the request, and its result is read
// later, from the operation or from the list of instances.
package cloud

import (
	"context"
	"time"
)

// Provider creates, lists and deletes instances in one account or project. It is safe for concurrent use, limits its own
// rate of requests and returns an *Error for everything that the provider refused.
type Provider interface {
	// Create asks for an instance. Asking again with the same RequestID is harmless: the provider creates one instance.
	// An instance of that name that was there before is an Error of class AlreadyExists.
	Create(ctx context.Context, instance InstanceSpec) (Operation, error)

	// Delete asks for the end of an instance, by its name or its ID. By the ID, no other machine that has its name by now is deleted. An
	// instance that does not exist is an Error of class NotFound.
	Delete(ctx context.Context, zone, instance, requestID string) (Operation, error)

	// Get reads one instance, by its name or its ID. It is for rare questions, such as after a lost answer; for the rest there is List.
	Get(ctx context.Context, zone, instance string) (*Instance, error)

	// List reads the instances of a zone that have all of the labels, with one call for each page of results.
	List(ctx context.Context, zone string, labels map[string]string) ([]Instance, error)

	// Operation reads how far an operation has come, without waiting for it.
	Operation(ctx context.Context, operation Operation) (Operation, error)

	// Preemptions reads which instances of a zone the provider took back since a time.
	Preemptions(ctx context.Context, zone string, since time.Time) ([]Preemption, error)

	// HostKeys reads the SSH host keys that an instance, named by its name or its ID, has published, one line of the authorized_keys form
	// for each; none when it has published none yet.
	HostKeys(ctx context.Context, zone, instance string) ([]string, error)

	// Shape reads what a machine type offers to pods.
	Shape(ctx context.Context, zone, machineType string) (Shape, error)
}

// InstanceSpec is the wish for an instance.
type InstanceSpec struct {
	// Name of the instance, unique in its project and zone, and of its node.
	Name string
	// Zone in which it is created.
	Zone string
	// RequestID is a UUID that makes the request idempotent.
	RequestID string
	// MachineType in the provider's words, for example n1-standard-4.
	MachineType string
	// Spot says whether the provider may take the instance back, for less money.
	Spot bool
	// Image to boot from, in the provider's words.
	Image string
	// DiskGB is the size of the boot disk, and DiskType its type.
	DiskGB   int64
	DiskType string
	// GPUType and GPUs are the attached accelerators; none when GPUs is 0.
	GPUType string
	GPUs    int32
	// Network and Subnetwork are the provider's defaults when empty.
	Network, Subnetwork string
	// NetworkTags put it under firewall rules.
	NetworkTags []string
	// ServiceAccount is the identity of programs on the instance; none when empty.
	ServiceAccount string
	// Labels by which it is found again.
	Labels map[string]string
	// Metadata is what the instance can read of itself, such as startup-script and ssh-keys.
	Metadata map[string]string
}

// Instance is an instance as the provider sees it.
type Instance struct {
	Name, Zone string
	// ID that the provider gave it.
	ID string
	// State in the words of Compute Engine: PROVISIONING, STAGING, RUNNING, STOPPING, TERMINATED, SUSPENDED and others.
	State string
	// StatusMessage explains the state, if the provider does.
	StatusMessage string
	// Spot says whether the provider may take it back.
	Spot        bool
	InternalIP  string
	ExternalIP  string
	MachineType string
	Labels      map[string]string
	Created     time.Time
}

// Operation is a request that the provider took and works on.
type Operation struct {
	// Name by which the provider knows it, in Zone.
	Name, Zone string
	// Began is when the provider took it up, by the provider's clock; zero when that is not known.
	Began time.Time
	// Done says that it has ended; Err is why it failed, nil when it did not.
	Done bool
	Err  error
}

// Preemption is an instance that the provider took back.
type Preemption struct {
	// Instance is its name, Time when the provider began to take it back.
	Instance string
	Time     time.Time
}

// Shape is what a machine type offers.
type Shape struct {
	// MilliCPU is in milli-units of a core, MemoryBytes all of the memory: the node keeps some of both for itself.
	MilliCPU, MemoryBytes int64
	// GPUs that the machine type brings by itself.
	GPUs int32
}
