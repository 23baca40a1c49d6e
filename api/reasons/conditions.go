// Package reasons names what the status of every kind says in one word: condition types, reasons and event reasons. A word has one
// meaning, whichever kind says it; which kinds say it stands beside it. The words are part of the API: a change of one is listed in
// CHANGELOG.md, and in Renamed until no served object can have the former one.
package reasons

// Condition types.
const (
	// ConditionReady of an AIJob is True from when all its pods run, also once it has succeeded. Of every other kind that has it,
	// it is True while the operator acts on the object and what it describes is in working order.
	ConditionReady = "Ready"
	// ConditionComplete of a TrainingJob, SpotInstanceJob, AIJob or AgentWorkflow is True once it has succeeded.
	ConditionComplete = "Complete"
	// ConditionFailed of a TrainingJob, SpotInstanceJob, AIJob or AgentWorkflow is True once it has failed and is not retried.
	ConditionFailed = "Failed"

	// ConditionChildrenApplied of a TrainingJob, SpotInstanceJob, AIJob or AgentWorkflow is False while an object that it needs cannot be
	// written or deleted; the message names the object and the cause. It is absent as long as that has not happened.
	ConditionChildrenApplied = "ChildrenApplied"

	// ConditionAdmitted of a TrainingJob is True once it may use its resources.
	ConditionAdmitted = "Admitted"
	// ConditionInitialized of a TrainingJob is True once all workers run; until then its message says what is waited for, and at the end
	// of the job how it ended.
	ConditionInitialized = "Initialized"
	// ConditionRunning of a TrainingJob is True while all workers run.
	ConditionRunning = "Running"
	// ConditionSuspended of a TrainingJob is True while it is suspended and no worker runs.
	ConditionSuspended = "Suspended"
	// ConditionRestarting of a TrainingJob is True from a failure until all workers run again.
	ConditionRestarting = "Restarting"
	// ConditionStopping of a TrainingJob is True from the decision to end the training early until no worker runs. Its reason is
	// that of the end: TargetReached, EarlyStopped or DeadlineExceeded.
	ConditionStopping = "Stopping"
	// ConditionCheckpointReady of a TrainingJob is True when the checkpoint storage can be used.
	ConditionCheckpointReady = "CheckpointReady"
	// ConditionNetworkReady of a TrainingJob with spec.networking.preflight is True when each worker reaches every other.
	ConditionNetworkReady = "NetworkReady"
	// ConditionSpotCapacity of a TrainingJob is True while the SpotInstanceVM that spec.scheduling.spot names can provide instances.
	ConditionSpotCapacity = "SpotCapacity"

	// ConditionRestored of a TrainingJob is True when it came with its status from a backup; the message names the job that was backed up.
	ConditionRestored = "Restored"

	// ConditionQueued of an AIJob is True while it waits in its queue; its message says for what.
	ConditionQueued = "Queued"
	// ConditionScheduled of an AIJob is True once resources are reserved for all its pods.
	ConditionScheduled = "Scheduled"
	// ConditionWorkersReady of an AIJobQueue is True while its pooled workers are as many and as ready as its tasks need.
	ConditionWorkersReady = "WorkersReady"

	// ConditionAllowed of a SpotInstanceVM is True when a cluster administrator allows it to create instances.
	ConditionAllowed = "Allowed"
	// ConditionCapacityAvailable of a SpotInstanceJob is True when every replica has a node; of a SpotInstanceVM, when the provider
	// last granted the instances that were asked for.
	ConditionCapacityAvailable = "CapacityAvailable"
	// ConditionCheckpointAgentAvailable of a SpotInstanceJob is True when something in the cluster takes checkpoints.
	ConditionCheckpointAgentAvailable = "CheckpointAgentAvailable"
	// ConditionCredentialsValid of a SpotInstanceVM is True when the provider accepted the credentials.
	ConditionCredentialsValid = "CredentialsValid"
)
