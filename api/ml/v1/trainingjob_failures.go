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

// UnsettledFailure is the end of workers that lost contact to one that has reported no end. Within a minute it turns out whether the node
// of such a worker was lost; if none was, it is a failure.
type UnsettledFailure struct {
	// time at which the operator saw it.
	// +required
	Time metav1.Time `json:"time,omitzero"`

	// nodes of the workers that had reported no end, at most 100, by name, each with the boot ID that it had then.
	// +kubebuilder:validation:MaxProperties=100
	Nodes map[string]string `json:"nodes,omitempty"`

	// retried says that the job is started again after it: it is part of restartCount, and of disruptionCount once a node turns out to
	// be lost. After one that would end the job, the job is not started again before it is settled.
	Retried bool `json:"retried,omitempty"`
}
