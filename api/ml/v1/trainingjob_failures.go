package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
