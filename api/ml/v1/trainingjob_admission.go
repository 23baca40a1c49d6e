package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AdmissionStatus is the place of a TrainingJob in its AIJobQueue, or the one that the queue gave it.
type AdmissionStatus struct {
	// queuedTime is since when the job waits, or waited until it was last admitted.
	QueuedTime *metav1.Time `json:"queuedTime,omitempty"`

	// admittedTime is when the job was last admitted; absent while it waits.
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=19,displayName="Admitted by its queue",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	AdmittedTime *metav1.Time `json:"admittedTime,omitempty"`

	// assignments are the nodes on which the workers have their place, at most 1000; absent while the job waits.
	// +listType=map
	// +listMapKey=nodeName
	// +kubebuilder:validation:MaxItems=1000
	Assignments []NodeAssignment `json:"assignments,omitempty"`

	// releasing says why the queue evicts the job, while its workers are being stopped: because a job of higher priority
	// gets it, for example.
	Releasing string `json:"releasing,omitempty"`

	// retryTime is when the job is queued again after its workers could not be started in its last place; absent when no such pause is
	// under way. A change of the spec ends the pause.
	RetryTime *metav1.Time `json:"retryTime,omitempty"`

	// failedStarts is how often in a row the job was evicted because its workers could not be started. The pause before it is queued again,
	// or before it may have the same nodes again, is 30 seconds, doubled each time, and 30 minutes at most. It is 0 once the
	// workers run.
	FailedStarts int32 `json:"failedStarts,omitempty"`

	// volumeTopology are selectors that a node must match all because the job's volumes can be used only there: the node affinity of
	// PersistentVolumes, and the allowedTopologies of StorageClasses of claims that are not bound yet.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	VolumeTopology []corev1.NodeSelector `json:"volumeTopology,omitempty"`

	// avoidedNodes are nodes to which workers were not bound, at most 100. The queue does not assign them to the job for a while.
	// +listType=map
	// +listMapKey=nodeName
	// +kubebuilder:validation:MaxItems=100
	AvoidedNodes []AvoidedNode `json:"avoidedNodes,omitempty"`

	// preemptionCount is how often the job gave its place to one of higher priority. These are no restarts.
	PreemptionCount int32 `json:"preemptionCount,omitempty"`
}

// NodeAssignment is the place of some workers on a node.
type NodeAssignment struct {
	// nodeName is the name of the node.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName,omitempty"`

	// workers is the number of workers on it, at least 1.
	// +required
	// +kubebuilder:validation:Minimum=1
	Workers int32 `json:"workers,omitempty"`
}

// AvoidedNode is a node to which workers of a job were not bound.
type AvoidedNode struct {
	// nodeName is the name of the node.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName,omitempty"`

	// until is when the queue may assign the node again.
	// +required
	Until *metav1.Time `json:"until,omitempty"`
}
