package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PreemptionStatus is what the job does about nodes with workers that their provider takes back, or did the last time.
type PreemptionStatus struct {
	// state is Checkpointing from the first notice until the workers leave, then Left; or Withdrawn when the notice was
	// taken back before.
	// +required
	State PreemptionState `json:"state,omitempty"`

	// count is the number of times that workers had to leave their nodes for a notice. Several notices that come together
	// are one time.
	Count int32 `json:"count"`

	// requestID of the checkpoint that was asked for at the first notice; empty when none could be asked for.
	// +kubebuilder:validation:MaxLength=128
	RequestID string `json:"requestID,omitempty"`

	// checkpointPath is the checkpoint that was taken for the notice; empty when there is none.
	// +kubebuilder:validation:MaxLength=2048
	CheckpointPath string `json:"checkpointPath,omitempty"`

	// message says what is waited for, or what was done.
	// +kubebuilder:validation:MaxLength=2048
	Message string `json:"message,omitempty"`

	// nodes are those whose notices were seen, at most 100. Each notice is acted upon once.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	Nodes []NoticedNode `json:"nodes,omitempty"`
}

// PreemptionState is how far a job has come with leaving nodes that their provider takes back.
// +kubebuilder:validation:Enum=Checkpointing;Left;Withdrawn
type PreemptionState string

// The states.
const (
	// PreemptionCheckpointing: a checkpoint was asked for, and the workers still train.
	PreemptionCheckpointing PreemptionState = "Checkpointing"
	// PreemptionLeft: the workers left the nodes.
	PreemptionLeft PreemptionState = "Left"
	// PreemptionWithdrawn: the notice was taken back, and the workers stay.
	PreemptionWithdrawn PreemptionState = "Withdrawn"
)

// NoticedNode is a node with workers that its provider takes back.
type NoticedNode struct {
	// name of the node.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// source that told it first, for example MetadataServer.
	// +kubebuilder:validation:MaxLength=64
	Source string `json:"source,omitempty"`

	// time of the notice.
	Time *metav1.MicroTime `json:"time,omitempty"`

	// deadline is when the node is expected to be gone.
	Deadline *metav1.MicroTime `json:"deadline,omitempty"`

	// left says that the workers were told to leave it. A worker that comes onto it again stays.
	Left bool `json:"left,omitempty"`
}
