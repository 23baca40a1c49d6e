// Package nodenotice reads the announcements of the coming end of a node from all sources, and makes one Notice of it.
//
// The Node object is where notices meet: Mark leaves one there, FromNode reads it, and reads besides what termination
// handlers, autoscalers and the kubelet leave there by themselves.
//
// A notice can be withdrawn: a taint is taken off again, or the instance went on after its maintenance. FromNode then
// finds none. What was done about it is not undone: a checkpoint taken is a checkpoint more, a pod that still runs runs
// on, and an instance that no pod needs is taken down like any other that is idle. A later notice on the same node is a
// new one.
package nodenotice

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Source of a notice.
type Source string

// The sources.
const (
	// MetadataServer of the instance told the node agent.
	MetadataServer Source = "MetadataServer"
	// HostMaintenance: the metadata server told the node agent that the instance is stopped for its host's maintenance.
	HostMaintenance Source = "HostMaintenance"
	// ComputeOperation or the state of the instance told it, as the provider lists them.
	ComputeOperation Source = "ComputeOperation"
	// Taint of a termination handler or of an autoscaler is on the node.
	Taint Source = "Taint"
	// NodeShutdown: the kubelet says that its machine shuts down.
	NodeShutdown Source = "NodeShutdown"
	// Annotation was set without its source, for example by a person.
	Annotation Source = "Annotation"
)

// Notice says that a node will be gone soon.
type Notice struct {
	// Node is its name.
	Node string
	// Source that told it first.
	Source Source
	// Detail is what was seen, for people, for example the key of the taint.
	Detail string
	// Time when it was first seen. It has the precision of the source: a second for conditions of nodes. Most taints
	// carry no time: then it is the time of the reading.
	Time time.Time
	// Deadline is when the node is expected to be gone.
	Deadline time.Time
}

// Grace is the time from a notice to the end of the node when the source does not say: Compute Engine gives 30 s.
const Grace = 30 * time.Second

// Compute Engine announces the maintenance of a host an hour ahead to instances with GPUs, and a minute to others.
const (
	maintenanceGrace        = time.Minute
	maintenanceGraceWithGPU = time.Hour
)

// grace that a notice of the source leaves to a node.
func (s Source) grace(node *corev1.Node) time.Duration {
	if s != HostMaintenance {
		return Grace
	}
	if gpus := node.Status.Allocatable[resourceGPU]; gpus.IsZero() {
		return maintenanceGrace
	}
	return maintenanceGraceWithGPU
}

// resourceGPU of nodes on Compute Engine.
const resourceGPU corev1.ResourceName = "nvidia.com/gpu"
