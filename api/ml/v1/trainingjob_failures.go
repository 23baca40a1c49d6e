package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Reasons of a restart that counts against backoffLimit: the training itself failed.
const (
	// ReasonWorkerFailed: a worker ended with an exit code other than 0.
	ReasonWorkerFailed = "WorkerFailed"
	// ReasonWorkerKilled: a worker was killed by a signal, and not for its memory.
	ReasonWorkerKilled = "WorkerKilled"
	// ReasonOutOfMemory: a worker was killed for using more memory than its limit.
	ReasonOutOfMemory = "OutOfMemory"
	// ReasonStorageLimitExceeded: a worker wrote more to its node's disk than its limit.
	ReasonStorageLimitExceeded = "StorageLimitExceeded"
	// ReasonContainerStartFailed: the program of a worker could not be started, for example for its path.
	ReasonContainerStartFailed = "ContainerStartFailed"
	// ReasonPeerLost: a worker lost another, whose own end was not seen.
	ReasonPeerLost = "PeerLost"
)

// Reasons of a restart that does not count against backoffLimit: a worker was lost to something outside the training.
const (
	// ReasonNodeLost: the node of a worker is gone, not ready or unreachable.
	ReasonNodeLost = "NodeLost"
	// ReasonNodeTainted: the node of a worker got a taint with the effect NoExecute, for example for maintenance.
	ReasonNodeTainted = "NodeTainted"
	// ReasonNodeShutdown: the node of a worker was shut down in good order.
	ReasonNodeShutdown = "NodeShutdown"
	// ReasonNodePressure: the kubelet evicted a worker, its node being short of memory, disk or processes.
	ReasonNodePressure = "NodePressure"
	// ReasonNodeRefused: the kubelet refused a worker that the scheduler had given to its node.
	ReasonNodeRefused = "NodeRefused"
	// ReasonEvicted: a worker was evicted through the API, for example by kubectl drain.
	ReasonEvicted = "Evicted"
	// ReasonPreempted: a worker had to make room for a pod of higher priority.
	ReasonPreempted = "Preempted"
	// ReasonPodDeleted: somebody deleted the pod of a worker.
	ReasonPodDeleted = "PodDeleted"
	// ReasonJobDeleted: somebody deleted the Job of the workers.
	ReasonJobDeleted = "JobDeleted"
	// ReasonDisrupted: a worker was lost in another way that the cluster calls a disruption.
	ReasonDisrupted = "Disrupted"
)

// FailureStatus is a failure or the loss of a worker, after which the job was started again or failed.
type FailureStatus struct {
	// reason in one word, for example OutOfMemory or NodeLost.
	// +optional
	Reason string `json:"reason,omitempty"`

	// worker is the replica that was the cause, from 0; absent when no single one was.
	// +optional
	Worker *int32 `json:"worker,omitempty"`

	// podName is the pod of the worker.
	// +optional
	PodName string `json:"podName,omitempty"`

	// nodeName is the node that the pod ran on.
	// +optional
	NodeName string `json:"nodeName,omitempty"`

	// exitCode of the worker's container; absent when none ended. Codes above 128 stand for signals.
	// +optional
	ExitCode *int32 `json:"exitCode,omitempty"`

	// counted says whether it counts against backoffLimit. Losses to preemption, eviction or a node do not.
	// +optional
	Counted bool `json:"counted"`

	// time at which the operator saw it.
	// +optional
	Time *metav1.Time `json:"time,omitempty"`
}
