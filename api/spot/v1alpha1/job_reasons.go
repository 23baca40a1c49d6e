package v1alpha1

// Reasons of the conditions of a SpotInstanceJob, beside those in common with SpotInstanceVM.
const (
	// ReasonReplicasPlaced: every replica has a node.
	ReasonReplicasPlaced = "ReplicasPlaced"
	// ReasonReplicasStarting: the pods of some replicas are being made.
	ReasonReplicasStarting = "ReplicasStarting"
	// ReasonUnschedulable: a replica finds no room, and no instances are created for it.
	ReasonUnschedulable = "Unschedulable"
	// ReasonSuspended: the template's spec.suspend is true.
	ReasonSuspended = "Suspended"
	// ReasonObjectConflict: a Job of the name of a replica's exists and is somebody else's.
	ReasonObjectConflict = "ObjectConflict"
	// ReasonInvalidTemplate: the API server refuses the Job of the template.
	ReasonInvalidTemplate = "InvalidTemplate"
	// ReasonForbidden: a quota or a policy of the cluster refuses the Job.
	ReasonForbidden = "Forbidden"

	// ReasonCheckpointAgentNotInstalled: the cluster serves no CheckpointBackup.
	ReasonCheckpointAgentNotInstalled = "CheckpointAgentNotInstalled"
	// ReasonCheckpointAgentSilent: nothing took up a CheckpointBackup within a minute.
	ReasonCheckpointAgentSilent = "CheckpointAgentSilent"
	// ReasonCheckpointFailed: the last checkpoint failed.
	ReasonCheckpointFailed = "CheckpointFailed"
	// ReasonCheckpointsTaken: the last checkpoint was complete.
	ReasonCheckpointsTaken = "CheckpointsTaken"
	// ReasonNoCheckpointYet: CheckpointBackups are served, and none has ended.
	ReasonNoCheckpointYet = "NoCheckpointYet"
	// ReasonSeveralPods: a replica has several pods, of which no common checkpoint can be taken.
	ReasonSeveralPods = "SeveralPods"

	// ReasonReplicaSucceeded: one replica has ended well.
	ReasonReplicaSucceeded = "ReplicaSucceeded"
	// ReasonAllReplicasFailed: every replica has failed for good.
	ReasonAllReplicasFailed = "AllReplicasFailed"
)
