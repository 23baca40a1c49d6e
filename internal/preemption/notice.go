// Package preemption knows how the coming end of a node is told, whoever tells it, and makes one Notice of it.
package preemption

import (
	"time"
)

// Source of a notice.
type Source string

// The sources.
const (
	// MetadataServer of the instance told the node agent.
	MetadataServer Source = "MetadataServer"
	// ComputeOperation or the state of the instance told it, as the provider lists them.
	ComputeOperation Source = "ComputeOperation"
	// Taint of a termination handler or of an autoscaler is on the node.
	Taint Source = "Taint"
	// NodeShutdown: the kubelet says that its machine shuts down.
	NodeShutdown Source = "NodeShutdown"
)

// Notice says that a node will be gone soon.
type Notice struct {
	// Node is its name.
	Node string
	// Source that told it first.
	Source Source
	// Detail is what was seen, for people, for example the key of the taint.
	Detail string
	// Time when it was first seen. It has the precision of the source: a second for conditions of nodes.
	Time time.Time
	// Deadline is when the node is expected to be gone.
	Deadline time.Time
}

// Grace is the time from a notice to the end of the node when the source does not say: Compute Engine gives 30 s.
const Grace = 30 * time.Second
