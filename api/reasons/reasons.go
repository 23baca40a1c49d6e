package reasons

// The spec, and what the API server says of objects made from it.
const (
	// Ready: everything is in working order.
	Ready = "Ready"
	// InvalidSpec: the API server or the cloud provider refuses what the spec describes. Nothing but another spec helps.
	InvalidSpec = "InvalidSpec"
	// InvalidImageName: spec.image is not a valid image reference.
	InvalidImageName = "InvalidImageName"
	// FrameworkNotSupported: this version cannot run the framework, or not as the spec asks.
	FrameworkNotSupported = "FrameworkNotSupported"
	// StorageNotSupported: this version cannot keep checkpoints in the storage, or resume from it.
	StorageNotSupported = "StorageNotSupported"
	// ObjectConflict: an object with the name of one that is needed exists and has another owner.
	ObjectConflict = "ObjectConflict"
	// Forbidden: the API server refuses an object because of an admission policy or missing rights.
	Forbidden = "Forbidden"
	// WriteFailed: an object could not be written or deleted, for another cause than the reasons above: the API server, or a webhook that it
	// asks, is at fault or does not answer. It is tried again.
	WriteFailed = "WriteFailed"
	// ResourceQuotaExceeded: a ResourceQuota of the namespace leaves no room for an object now.
	ResourceQuotaExceeded = "ResourceQuotaExceeded"
	// QuotaTooSmall: a ResourceQuota of the namespace is less than what the job needs.
	QuotaTooSmall = "QuotaTooSmall"
	// PodSecurityViolation: the Pod Security level of the namespace forbids the pods.
	PodSecurityViolation = "PodSecurityViolation"
	// PodCreationFailed: pods cannot be created, for another cause than the reasons above.
	PodCreationFailed = "PodCreationFailed"
	// Deleting: the object is being deleted, and what belongs to it first.
	Deleting = "Deleting"
	// SecretNotFound: a Secret that the object names does not exist, lacks a key, or lies in another namespace.
	SecretNotFound = "SecretNotFound"
	// PriorityClassNotFound: the cluster has no PriorityClass of the name.
	PriorityClassNotFound = "PriorityClassNotFound"
	// ClusterScopeRequired: the object takes an operator of all namespaces, and the one that serves its namespace is limited to some.
	ClusterScopeRequired = "ClusterScopeRequired"
)

// Queues and admission.
const (
	// AdmittedUnqueued: the job names no queue and is admitted at once.
	AdmittedUnqueued = "AdmittedUnqueued"
	// AdmittedByQueue: the queue reserved resources for the whole job.
	AdmittedByQueue = "AdmittedByQueue"
	// Queued: the job waits for its queue to admit it.
	Queued = "Queued"
	// Preempted: a job with a higher priority took the resources that the queue had reserved for this one.
	Preempted = "Preempted"
	// EvictedByQueue: the job lost the resources that the queue had reserved for it, for another cause than a preemption.
	EvictedByQueue = "EvictedByQueue"
	// RequeuedAfterEdit: the spec was edited while the job waited for Kueue, in a way that needs another Job, which waits as a new one.
	RequeuedAfterEdit = "RequeuedAfterEdit"
	// QueueNotFound: the AIJobQueue that the object names does not exist.
	QueueNotFound = "QueueNotFound"
	// ClusterNotFound: the ComputeCluster that the object names does not exist.
	ClusterNotFound = "ClusterNotFound"
	// QueueRequired: the job names no queue, and the operator admits no job without one.
	QueueRequired = "QueueRequired"
	// NamespaceNotSelected: the namespaceSelector of the queue does not select the namespace of the job.
	NamespaceNotSelected = "NamespaceNotSelected"
	// PriorityTooHigh: the priority of the job is above the maxPriority of the queue.
	PriorityTooHigh = "PriorityTooHigh"
	// QueueSuspended: spec.suspend of the queue is true; it admits no further job.
	QueueSuspended = "QueueSuspended"
	// QuotaReached: a quota or limit of the queue is reached.
	QuotaReached = "QuotaReached"
	// InsufficientCapacity: the pods of the job do not all fit on the nodes now.
	InsufficientCapacity = "InsufficientCapacity"
	// WaitingForPreemption: jobs with a lower priority are being stopped for this one.
	WaitingForPreemption = "WaitingForPreemption"
	// WaitingBehindGang: the job would delay a gang that waits longer or has a higher priority.
	WaitingBehindGang = "WaitingBehindGang"
	// NoMatchingNodes: no node matches the selector.
	NoMatchingNodes = "NoMatchingNodes"
	// NodesNotReady: some nodes, or all, accept no pods.
	NodesNotReady = "NodesNotReady"
	// GangScheduled: a gang scheduler starts the workers together.
	GangScheduled = "GangScheduled"
	// GangNotServed: the cluster does not serve the gang scheduler that the job names.
	GangNotServed = "GangNotServed"
	// KueueNotServed: the job names a queue of Kueue, which the cluster does not serve.
	KueueNotServed = "KueueNotServed"
)

// Suspension.
const (
	// Suspended: spec.suspend is true.
	Suspended = "Suspended"
	// Resumed: spec.suspend is no longer true.
	Resumed = "Resumed"
	// NotSuspended: spec.suspend is not true.
	NotSuspended = "NotSuspended"
)

// Starting and running.
const (
	// SchedulerSilent: no scheduler has looked at a pod for a minute.
	SchedulerSilent = "SchedulerSilent"
	// WorkersStarting: pods are being created or started.
	WorkersStarting = "WorkersStarting"
	// WorkersRunning: all workers of a TrainingJob run.
	WorkersRunning = "WorkersRunning"
	// Running: all pods of an AIJob run.
	Running = "Running"
	// Unschedulable: kube-scheduler finds no node for a pod.
	Unschedulable = "Unschedulable"
	// ImagePullFailed: the image of a pod cannot be pulled.
	ImagePullFailed = "ImagePullFailed"
	// ContainerConfigError: a container lacks what its settings name, for example a Secret.
	ContainerConfigError = "ContainerConfigError"
	// PodsNotStarted: pods of a queued job did not start in time.
	PodsNotStarted = "PodsNotStarted"
	// RestoredFromBackup: the object came with its status from a backup of another one of its name; what had not ended starts again.
	RestoredFromBackup = "RestoredFromBackup"
	// Rescaled: spec.numWorkers of an elastic job changed, and the workers are started again for it.
	Rescaled = "Rescaled"
	// Rescaling: spec.numWorkers of an elastic job changed; the training continues while workers join or leave.
	Rescaling = "Rescaling"
	// CheckingNodes: pods lost contact to one that has reported no end; whether its node was lost decides whether that ends the job.
	CheckingNodes = "CheckingNodes"
	// PeersReachable: each worker of a TrainingJob reaches every other.
	PeersReachable = "PeersReachable"
	// PeerNotResolved: DNS knows no address of a worker that another looks for.
	PeerNotResolved = "PeerNotResolved"
	// PeerUnreachable: the address of a worker does not answer another.
	PeerUnreachable = "PeerUnreachable"
	// PeerRefused: a worker, or what is in between, refuses connections of another.
	PeerRefused = "PeerRefused"
	// WorkerLost: an elastic training continues with fewer workers until the lost one is replaced.
	WorkerLost = "WorkerLost"
)

// Failures of the program. They count as retries.
const (
	// ProgramFailed: a container ended with an exit code other than 0.
	ProgramFailed = "ProgramFailed"
	// ProgramKilled: a container was killed by a signal, and not for its memory.
	ProgramKilled = "ProgramKilled"
	// OutOfMemory: a container was killed for using more memory than its limit.
	OutOfMemory = "OutOfMemory"
	// StorageLimitExceeded: a pod was evicted for writing more to its node than its ephemeral-storage limit.
	StorageLimitExceeded = "StorageLimitExceeded"
	// ContainerStartFailed: the program of a container could not be started, for example because its path does not exist.
	ContainerStartFailed = "ContainerStartFailed"
	// InitContainerFailed: an init container ended with an exit code other than 0, so that the program was not started.
	InitContainerFailed = "InitContainerFailed"
	// PeerLost: a pod ended because it lost contact to another, whose own end was not seen.
	PeerLost = "PeerLost"
)

// Losses of a pod to something outside of its program. They do not count as retries.
const (
	// NodeLost: the node of a pod is gone, not ready or unreachable, or was started again.
	NodeLost = "NodeLost"
	// NodeTainted: the node of a pod got a taint with the effect NoExecute.
	NodeTainted = "NodeTainted"
	// NodeShutdown: the node of a pod was shut down gracefully.
	NodeShutdown = "NodeShutdown"
	// NodePressure: the kubelet evicted a pod because its node was short of memory, disk or process IDs.
	NodePressure = "NodePressure"
	// NodeRefused: the kubelet refused a pod that was bound to its node.
	NodeRefused = "NodeRefused"
	// NodePreempted: the cloud provider takes the node of a pod back.
	NodePreempted = "NodePreempted"
	// Evicted: a pod was evicted through the API, for example by kubectl drain.
	Evicted = "Evicted"
	// PodPreempted: kube-scheduler removed a pod for one with a higher priority.
	PodPreempted = "PodPreempted"
	// PodDeleted: a user or another program deleted a pod.
	PodDeleted = "PodDeleted"
	// JobDeleted: a user or another program deleted the Job of the workers.
	JobDeleted = "JobDeleted"
	// Disrupted: a pod was lost to another disruption.
	Disrupted = "Disrupted"
)

// The end of a job.
const (
	// TrainingCompleted: all workers ended with exit code 0.
	TrainingCompleted = "TrainingCompleted"
	// TargetReached: the training ended early because the target of successPolicy was reached.
	TargetReached = "TargetReached"
	// EarlyStopped: the training ended early because it no longer improved.
	EarlyStopped = "EarlyStopped"
	// Completed: all pods of an AIJob ended with exit code 0.
	Completed = "Completed"
	// ReplicaSucceeded: one replica of a SpotInstanceJob has succeeded.
	ReplicaSucceeded = "ReplicaSucceeded"
	// AllReplicasFailed: no replica of a SpotInstanceJob is restarted any more.
	AllReplicasFailed = "AllReplicasFailed"
	// BackoffLimitExceeded: there were more failures than backoffLimit allows.
	BackoffLimitExceeded = "BackoffLimitExceeded"
	// RetriesExhausted: an AIJob failed more often than retryPolicy allows.
	RetriesExhausted = "RetriesExhausted"
	// NonRetryableExitCode: a worker ended with an exit code that allows no restart.
	NonRetryableExitCode = "NonRetryableExitCode"
	// RestartPolicyNever: a worker failed and restartPolicy is Never.
	RestartPolicyNever = "RestartPolicyNever"
	// DeadlineExceeded: the job ran longer than activeDeadlineSeconds or timeoutSeconds.
	DeadlineExceeded = "DeadlineExceeded"
	// Cancelled: spec.cancel is true, or the AIJob is being deleted.
	Cancelled = "Cancelled"
	// Requeued: an AIJob came back from DeadLetter.
	Requeued = "Requeued"
	// Retrying: the pause before the next attempt of an AIJob is over.
	Retrying = "Retrying"
)

// Checkpoints of a TrainingJob.
const (
	// StorageReady: the checkpoint storage can be used.
	StorageReady = "StorageReady"
	// ClaimNotFound: the claim that claimName or resumeFrom names does not exist.
	ClaimNotFound = "ClaimNotFound"
	// ClaimPending: a PersistentVolumeClaim of the job is not bound, and its pods wait for that.
	ClaimPending = "ClaimPending"
	// ResumeSourceNotFound: the TrainingJob that resumeFrom names does not exist, or has no checkpoint yet.
	ResumeSourceNotFound = "ResumeSourceNotFound"
	// CheckpointNotFound: what resumeFrom names does not exist or holds no valid checkpoint.
	CheckpointNotFound = "CheckpointNotFound"
	// RestoreFailed: the init container that restores a checkpoint failed.
	RestoreFailed = "RestoreFailed"
	// CheckpointNotStored: the training ended before its last checkpoint was in the storage.
	CheckpointNotStored = "CheckpointNotStored"
	// CheckpointSidecarCrashing: the checkpoint sidecar ends again and again.
	CheckpointSidecarCrashing = "CheckpointSidecarCrashing"
)

// Checkpoints of a SpotInstanceJob.
const (
	// CheckpointAgentNotInstalled: the cluster serves no CheckpointBackup.
	CheckpointAgentNotInstalled = "CheckpointAgentNotInstalled"
	// CheckpointAgentSilent: no checkpoint agent took up a CheckpointBackup within a minute.
	CheckpointAgentSilent = "CheckpointAgentSilent"
	// CheckpointFailed: the last checkpoint failed.
	CheckpointFailed = "CheckpointFailed"
	// CheckpointsTaken: the last checkpoint is complete.
	CheckpointsTaken = "CheckpointsTaken"
	// NoCheckpointYet: CheckpointBackups are served, and none has completed.
	NoCheckpointYet = "NoCheckpointYet"
	// SeveralPods: a replica has several pods, and a common checkpoint of them is not possible.
	SeveralPods = "SeveralPods"
)

// Spot instances.
const (
	// SpotInstanceVMReady: the SpotInstanceVM exists and can create instances as far as is known.
	SpotInstanceVMReady = "SpotInstanceVMReady"
	// SpotInstanceVMNotFound: there is no SpotInstanceVM of the name in the namespace of the job.
	SpotInstanceVMNotFound = "SpotInstanceVMNotFound"
	// NamespaceAllowed: a cluster administrator allows the namespace to have spot instances.
	NamespaceAllowed = "NamespaceAllowed"
	// NamespaceNotAllowed: no cluster administrator has allowed the namespace to have spot instances.
	NamespaceNotAllowed = "NamespaceNotAllowed"
	// IdentityNotAllowed: no cluster administrator has allowed the use of the operator's own identity that the spec asks for.
	IdentityNotAllowed = "IdentityNotAllowed"
	// Provisioning: instances are being created or are joining the cluster.
	Provisioning = "Provisioning"
	// ReplicasPlaced: every replica of a SpotInstanceJob has a node.
	ReplicasPlaced = "ReplicasPlaced"
	// ReplicasStarting: pods of some replicas are being created.
	ReplicasStarting = "ReplicasStarting"
	// ZoneExhausted: no zone had an instance of this kind to give.
	ZoneExhausted = "ZoneExhausted"
	// ProviderQuotaExceeded: the quota of the provider's project does not allow the instance.
	ProviderQuotaExceeded = "ProviderQuotaExceeded"
	// MaxInstancesReached: maxInstances are in use.
	MaxInstancesReached = "MaxInstancesReached"
	// PermissionDenied: the provider does not accept the credentials, or does not let them do what is needed.
	PermissionDenied = "PermissionDenied"
	// ProviderUnavailable: the provider does not answer, or answers that it has failed.
	ProviderUnavailable = "ProviderUnavailable"
	// JoinFailed: an instance did not become a ready node in time.
	JoinFailed = "JoinFailed"
	// PodDoesNotFit: a pod requests more than an instance has, or something other than resources keeps it off.
	PodDoesNotFit = "PodDoesNotFit"
	// InstancePreempted: the provider took an instance back.
	InstancePreempted = "InstancePreempted"
)

// The code of a job (spec.source).
const (
	// SourceInvalid: the code can never be used as it is: an entry leads out of the directory, there is too much of it, it has another
	// checksum, or it needs what is not supported.
	SourceInvalid = "SourceInvalid"
	// SourceChanged: the code is not that of the first start.
	SourceChanged = "SourceChanged"
	// SourceNotFound: there is no such ConfigMap, repository, commit, artifact or file.
	SourceNotFound = "SourceNotFound"
	// SourceUnreachable: the server of the code does not answer, or not as it should.
	SourceUnreachable = "SourceUnreachable"
	// SourceAccessDenied: the server of the code refuses the credentials, or there are none.
	SourceAccessDenied = "SourceAccessDenied"
	// SourceVolumeFull: the node has no space left for the code.
	SourceVolumeFull = "SourceVolumeFull"
)

// Agents and workflows.
const (
	// AgentNotFound: an Agent that the workflow names does not exist.
	AgentNotFound = "AgentNotFound"
	// InvalidAgent: an Agent contradicts itself, so that no stage can be made from it.
	InvalidAgent = "InvalidAgent"
	// InvalidReference: an input refers to an output that the Agent does not have, or a condition is wrong.
	InvalidReference = "InvalidReference"
	// InvalidTrigger: the trigger of the workflow can never start it.
	InvalidTrigger = "InvalidTrigger"
	// StageFailed: a stage of the workflow failed and is not retried.
	StageFailed = "StageFailed"
	// StagesEnded: all stages of the workflow have Succeeded or were Skipped.
	StagesEnded = "StagesEnded"
)

// Pooled workers of an AIJobQueue.
const (
	// WorkersReady: all workers that there should be are ready.
	WorkersReady = "WorkersReady"
	// ScaledToZero: there is no task, and no worker.
	ScaledToZero = "ScaledToZero"
	// JobServiceUnreachable: the job service does not say how many tasks there are. The number of workers stays as it is.
	JobServiceUnreachable = "JobServiceUnreachable"
	// WorkersFailing: the container of the workers ends again and again, or cannot be started.
	WorkersFailing = "WorkersFailing"
)

// Renamed has the present name of each reason of version 0.3 that has another one now. Objects keep the former one in their status
// until they are reconciled, and some decisions are made by it.
var Renamed = map[string]string{
	"Admitted":             AdmittedByQueue,
	"AgentCrashing":        CheckpointSidecarCrashing,
	"ImageCannotBePulled":  ImagePullFailed,
	"InvalidTemplate":      InvalidSpec,
	"NameTaken":            ObjectConflict,
	"PodInvalid":           InvalidSpec,
	"PodRejected":          Forbidden,
	"PodSecurityViolated":  PodSecurityViolation,
	"PodsNotPlaced":        Unschedulable,
	"QuotaExceeded":        ResourceQuotaExceeded,
	"SuspendedBySpec":      Suspended,
	"Timeout":              DeadlineExceeded,
	"WorkerFailed":         ProgramFailed,
	"WorkerKilled":         ProgramKilled,
	"WorkersFail":          WorkersFailing,
	"WorkersRefused":       PodCreationFailed,
	"WorkersUnschedulable": Unschedulable,
}
