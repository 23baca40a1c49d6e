package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// FailureStatus is a failure or the loss of a worker, after which the job was started again or failed.
type FailureStatus struct {
	// attempt in which it happened, from 1.
	Attempt int32 `json:"attempt,omitempty"`

	// reason in one word, for example OutOfMemory or NodeLost.
	Reason string `json:"reason,omitempty"`

	// worker is the replica that was the cause, from 0; absent when no single one was.
	Worker *int32 `json:"worker,omitempty"`

	// podName is the pod of the worker.
	PodName string `json:"podName,omitempty"`

	// nodeName is the node that the pod ran on.
	NodeName string `json:"nodeName,omitempty"`

	// exitCode of the worker's container; absent when none ended. Codes above 128 stand for signals.
	ExitCode *int32 `json:"exitCode,omitempty"`

	// output is the end of what the worker's container wrote last, for example a traceback, without the secrets that can be known as such: its
	// termination message or, without one, the end of its log; at most 2048 characters.
	Output string `json:"output,omitempty"`

	// counted says whether it counts against backoffLimit. Losses to preemption, eviction or a node do not.
	Counted bool `json:"counted"`

	// time at which the operator saw it.
	Time *metav1.Time `json:"time,omitempty"`
}
