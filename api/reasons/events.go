package reasons

// Reasons of events that are not also reasons in a status.
const (
	// EventInitializing: the workers of a TrainingJob are being started.
	EventInitializing = "Initializing"
	// EventRunning: all pods of a job run.
	EventRunning = "Running"
	// EventRestarting: a TrainingJob is started again after a failure.
	EventRestarting = "Restarting"
	// EventSuspended: a TrainingJob is suspended and no worker runs.
	EventSuspended = "Suspended"
	// EventStopping: a TrainingJob is ended early, or for its deadline.
	EventStopping = "Stopping"
	// EventCompleted: a job or workflow has succeeded.
	EventCompleted = "Completed"
	// EventFailed: a job or workflow has failed and is not retried.
	EventFailed = "Failed"
	// EventGPUsDivided: spec.resources of a TrainingJob asks for the GPUs of the whole job, which each worker gets a share of.
	EventGPUsDivided = "GPUsDivided"
	// EventWorkerRejoined: an elastic TrainingJob has all its workers again.
	EventWorkerRejoined = "WorkerRejoined"

	// EventCheckpointSaved: a checkpoint is complete in the storage.
	EventCheckpointSaved = "CheckpointSaved"
	// EventCheckpointRestored: a training starts from a checkpoint.
	EventCheckpointRestored = "CheckpointRestored"
	// EventCheckpointSkipped: a checkpoint is not valid and was not restored.
	EventCheckpointSkipped = "CheckpointSkipped"
	// EventCheckpointRequestDone: a checkpoint that was asked for is complete.
	EventCheckpointRequestDone = "CheckpointRequestDone"
	// EventCheckpointRequestFailed: a checkpoint that was asked for could not be taken.
	EventCheckpointRequestFailed = "CheckpointRequestFailed"
	// EventCheckpointProblem: the checkpoint storage cannot be used.
	EventCheckpointProblem = "CheckpointProblem"
	// EventCheckpointStorageReady: the checkpoint storage can be used again.
	EventCheckpointStorageReady = "CheckpointStorageReady"

	// EventPreemptionNotice: the provider is about to take nodes of a TrainingJob back.
	EventPreemptionNotice = "PreemptionNotice"
	// EventPreemptionNoticeWithdrawn: the provider withdrew its notice.
	EventPreemptionNoticeWithdrawn = "PreemptionNoticeWithdrawn"
	// EventPreemptionCheckpoint: a checkpoint was taken within the notice, and the workers leave.
	EventPreemptionCheckpoint = "PreemptionCheckpoint"
	// EventPreemptionWithoutCheckpoint: the workers leave and no checkpoint was taken within the notice.
	EventPreemptionWithoutCheckpoint = "PreemptionWithoutCheckpoint"
	// EventSpotCapacityMissing: the SpotInstanceVM of a TrainingJob cannot provide instances.
	EventSpotCapacityMissing = "SpotCapacityMissing"
	// EventSpotCapacityAvailable: the SpotInstanceVM of a TrainingJob can provide instances again.
	EventSpotCapacityAvailable = "SpotCapacityAvailable"

	// EventReplicaRestarted: a replica of a SpotInstanceJob has a new Job.
	EventReplicaRestarted = "ReplicaRestarted"
	// EventReplicaRestarting: a replica of a SpotInstanceJob is started again.
	EventReplicaRestarting = "ReplicaRestarting"
	// EventReplicaPreempted: the node of a replica is being taken back.
	EventReplicaPreempted = "ReplicaPreempted"
	// EventReplicaFailed: a replica has failed and is not restarted.
	EventReplicaFailed = "ReplicaFailed"

	// EventInstanceRequested: an instance is about to be created.
	EventInstanceRequested = "InstanceRequested"
	// EventInstanceCreated: the provider created an instance.
	EventInstanceCreated = "InstanceCreated"
	// EventInstanceRefused: the provider refused to create an instance.
	EventInstanceRefused = "InstanceRefused"
	// EventInstanceAdopted: an instance with the labels of the SpotInstanceVM was found that its status lacked.
	EventInstanceAdopted = "InstanceAdopted"
	// EventInstanceReady: an instance became a ready node.
	EventInstanceReady = "InstanceReady"
	// EventInstanceDeleting: an instance is being deleted.
	EventInstanceDeleting = "InstanceDeleting"

	// EventNodeAgentUnguarded: the node agent lacks the right to mark its own Node, or the policy that limits the right to that, so that it
	// does not run.
	EventNodeAgentUnguarded = "NodeAgentUnguarded"

	// EventScheduled: an AIJob has resources reserved for all its pods.
	EventScheduled = "Scheduled"
	// EventStarted: a run of a workflow has started.
	EventStarted = "Started"
	// EventStartSkipped: a trigger came while the previous run of the workflow was still active.
	EventStartSkipped = "StartSkipped"
	// EventStageSkipped: the condition of a stage did not hold.
	EventStageSkipped = "StageSkipped"

	// EventStorageMigrated: all objects of a kind are stored in the storage version.
	EventStorageMigrated = "StorageMigrated"
	// EventStorageMigrationFailed: objects of a kind could not be rewritten in the storage version.
	EventStorageMigrationFailed = "StorageMigrationFailed"
)
