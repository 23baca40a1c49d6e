// Package scheduler decides which waiting jobs are admitted, where their pods go, and which jobs lose their place for them. It is
// a pure function over a Snapshot: it talks to no server, reads no clock and draws no random numbers, so the same snapshot
// always gives the same Decisions.
package scheduler

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
)

// Snapshot is all that a cycle depends on.
type Snapshot struct {
	// Now is the time of the cycle.
	Now time.Time
	// Nodes of the Kubernetes cluster, in any order.
	Nodes []Node
	// Queues and Clusters that jobs name.
	Queues   []*aiplatformv1alpha1.AIJobQueue
	Clusters []*aiplatformv1alpha1.ComputeCluster
	// Namespaces are the labels of each namespace, by which queues select.
	Namespaces map[string]labels.Set
	// RequireQueue keeps jobs waiting that name no queue.
	RequireQueue bool
	// Running are the jobs that were admitted and hold resources or quota, those included that are being stopped.
	Running []Job
	// Pending are the jobs that wait.
	Pending []Job
}

// Resources are amounts of what a node has for pods: CPU in millicores, memory and storage in bytes, whole GPUs
// (nvidia.com/gpu), a number of pods, and other extended resources by name.
type Resources struct {
	MilliCPU, Memory, EphemeralStorage, GPUs, Pods int64
	Extended                                       map[corev1.ResourceName]int64
}

// Node is a node that pods can be placed on.
type Node struct {
	Name   string
	Labels map[string]string
	Taints []corev1.Taint
	// Created orders the nodes of a Cluster with MaxNodes.
	Created time.Time
	// Ready is false for a node that is not, that is cordoned or that is about to go: nothing is placed on it.
	Ready bool
	// Allocatable is what it has for pods, Requested what the pods on it request that belong to no job in Running.
	Allocatable, Requested Resources
}

// Job waits for, or holds, room for all of its Members at once.
type Job struct {
	// UID tells it from others; Kind, Namespace and Name are for messages.
	UID types.UID
	// Generation of the object that this says; 0 when it is not known.
	Generation            int64
	Kind, Namespace, Name string
	// User whose limits count. Jobs whose user is not known, because it is empty, count as those of one user.
	User string
	// Queue and Cluster that it names; empty: none. One that does not exist keeps it waiting.
	Queue, Cluster string
	// Priority, higher first. Preemptible jobs can lose their place to one of higher priority.
	Priority    int32
	Preemptible bool
	// QueuedAt is since when it waits; AdmittedAt since when it runs.
	QueuedAt, AdmittedAt time.Time
	// Groups of members; a job of one kind of pod has one.
	Groups []Group
	// Topology is a label whose value all its nodes must share; empty: any nodes.
	Topology string
	// Placement of a running job: the node of each member, in the order of the groups. Its members count on these nodes, whether
	// their pods exist yet or not. Empty for a job that holds quota only.
	Placement []string
	// Stopping says that the job is already giving its place back: its victims' room is counted as soon to be free.
	Stopping bool
}

// Group is a number of members with the same needs.
type Group struct {
	Count        int
	Requests     Resources
	NodeSelector map[string]string
	Tolerations  []corev1.Toleration
	// Required are selectors that a node must match all: of the required node affinity, and of where volumes can be used. Preferences are
	// not looked at.
	Required []*corev1.NodeSelector
}

// Decisions are what a cycle decides. Every pending job is in Admitted or in Waiting.
type Decisions struct {
	// Admitted jobs, in the order in which they were.
	Admitted []Admission
	// Preempted jobs must release their quota and nodes.
	Preempted []Preemption
	// Waiting jobs, in the order of their queues.
	Waiting []Wait
}

// Admission gives a job all the room that it needs.
type Admission struct {
	UID types.UID
	// Generation is that of the job for which this was decided.
	Generation int64
	// Nodes are the node of each member, in the order of the groups.
	Nodes []string
	// Cluster in which they are; empty unless the job names one.
	Cluster string
}

// Of says whether the decision is on an object as it is in a generation, and not as it was before an edit.
func (a *Admission) Of(generation int64) bool { return a.Generation == 0 || a.Generation == generation }

// Preemption takes a job's place for another.
type Preemption struct {
	// UID of the job that loses its place, For the one that gets it once the place is free.
	UID, For types.UID
}

// Wait says why a job waits.
type Wait struct {
	UID types.UID
	// Position in its queue, from 1; of jobs without a queue, among those. 0: it is in none.
	Position int
	// Reason is one of the condition reasons of api/aiplatform: QueueRequired, NamespaceNotSelected, PriorityTooHigh, QueueNotFound, ClusterNotFound, QueueSuspended, QuotaReached,
	// InsufficientCapacity, WaitingForPreemption, WaitingBehindGang.
	Reason string
	// Message says in a sentence what it waits for, with numbers, for example: needs 4 GPUs on nodes that fit, 2 are free.
	Message string
}
