// Package checkpointbackup reads and writes CheckpointBackups, the requests for checkpoints of running containers by
// which the operator and a checkpoint agent talk. The kind is not the operator's own: two versions of it are in use, v1
// and v1alpha1, with the same spec and two ways to tell the images in the status. Both are read here.
package checkpointbackup

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Group and kind of a CheckpointBackup, and its versions, the preferred one first.
var (
	GroupKind = schema.GroupKind{Group: "migration.dcnlab.com", Kind: "CheckpointBackup"}
	Versions  = []string{"v1", "v1alpha1"}
)

// Immediately is the schedule of one checkpoint, at once.
const Immediately = "immediately"

// Phase of a CheckpointBackup as its agent writes it; empty before it has begun.
type Phase string

// The phases; the last four are the end.
const (
	Checkpointing       Phase = "Checkpointing"
	Checkpointed        Phase = "Checkpointed"
	ImageBuilding       Phase = "ImageBuilding"
	ImageBuilt          Phase = "ImageBuilt"
	ImagePushing        Phase = "ImagePushing"
	ImagePushed         Phase = "ImagePushed"
	Completed           Phase = "Completed"
	CompletedPodDeleted Phase = "CompletedPodDeleted"
	CompletedWithError  Phase = "CompletedWithError"
	Failed              Phase = "Failed"
)

// Ended says whether nothing more will happen.
func (p Phase) Ended() bool {
	switch p {
	case Completed, CompletedPodDeleted, CompletedWithError, Failed:
		return true
	default:
		return false
	}
}

// Backup is a CheckpointBackup.
type Backup struct {
	Key     types.NamespacedName
	Created time.Time
	Deleted bool
	Labels  map[string]string

	Spec   Spec
	Status Status
}

// Spec is what is asked for.
type Spec struct {
	// Schedule is Immediately or a cron expression.
	Schedule string
	// StopPod deletes the pod after the checkpoint.
	StopPod bool
	// Pod whose containers are checkpointed.
	Pod types.NamespacedName `json:"podRef"`
	// Resource is the workload of the pod, a Job.
	Resource Resource `json:"resourceRef"`
	// Registry to which the images are pushed.
	Registry Registry
	// Containers to checkpoint, each with the image that its checkpoint becomes.
	Containers []Container
}

// Resource is a workload.
type Resource struct {
	APIVersion, Kind, Namespace, Name string
}

// Registry is where images are pushed.
type Registry struct {
	// URL is the host and, if need be, port; Repository the path below it.
	URL, Repository string
	// Secret of type kubernetes.io/dockerconfigjson; none when its name is empty.
	Secret types.NamespacedName `json:"secretRef"`
}

// Container is a container and the image of its checkpoint.
type Container struct {
	Name, Image string
}

// Status is what the agent tells.
type Status struct {
	Phase Phase
	// Message explains a failure, if the agent does.
	Message string
	// Completed is when it ended; zero before.
	Completed time.Time
	// Images that were pushed, by container.
	Images []Container
}
