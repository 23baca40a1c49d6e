package v1

// Condition types of a TrainingJob.
const (
	// ConditionAdmitted is True once the job may use its resources.
	ConditionAdmitted = "Admitted"
	// ConditionInitialized is True once all workers run; its message says what the job waits for.
	ConditionInitialized = "Initialized"
	// ConditionRunning is True while all workers run.
	ConditionRunning = "Running"
	// ConditionSuspended is True while the job is suspended and no worker runs.
	ConditionSuspended = "Suspended"
	// ConditionRestarting is True from a failure until all workers run again.
	ConditionRestarting = "Restarting"
	// ConditionComplete is True when the training has ended well.
	ConditionComplete = "Complete"
	// ConditionFailed is True when the job has failed for good.
	ConditionFailed = "Failed"
	// ConditionStopping is True from the decision to end the training before its last epoch until no worker runs: its
	// reason is that of the end, TargetReached, EarlyStopped or DeadlineExceeded.
	ConditionStopping = "Stopping"
	// ConditionCheckpointReady is True when the checkpoint storage can be used.
	ConditionCheckpointReady = "CheckpointReady"
)

// Reasons of a TrainingJob's state and conditions.
const (
	// ReasonAdmittedUnqueued: the job asks for no queue and is admitted at once.
	ReasonAdmittedUnqueued = "AdmittedUnqueued"
	// ReasonGangScheduled: a gang scheduler starts the workers together.
	ReasonGangScheduled = "GangScheduled"
	// ReasonGangNotServed: the cluster does not serve the gang scheduler that the job names.
	ReasonGangNotServed = "GangNotServed"
	// ReasonKueueNotServed: the job names a queue of Kueue, which the cluster does not serve.
	ReasonKueueNotServed = "KueueNotServed"
	// ReasonQueued: the job waits for its queue to admit it.
	ReasonQueued = "Queued"
	// ReasonAdmittedByQueue: the queue lets the job run.
	ReasonAdmittedByQueue = "AdmittedByQueue"
	// ReasonEvictedByQueue: the queue took the job's resources back while it ran.
	ReasonEvictedByQueue = "EvictedByQueue"
	// ReasonFrameworkNotSupported: this version cannot run the framework, or not as the spec is.
	ReasonFrameworkNotSupported = "FrameworkNotSupported"
	// ReasonStorageNotSupported: this version cannot keep checkpoints in the storage, or resume from it.
	ReasonStorageNotSupported = "StorageNotSupported"
	// ReasonStorageReady: the checkpoint storage can be used.
	ReasonStorageReady = "StorageReady"
	// ReasonClaimNotFound: the claim that claimName or resumeFrom names does not exist.
	ReasonClaimNotFound = "ClaimNotFound"
	// ReasonResumeSourceNotFound: the TrainingJob that resumeFrom names does not exist, or has no checkpoint yet.
	ReasonResumeSourceNotFound = "ResumeSourceNotFound"
	// ReasonCheckpointNotFound: what resumeFrom names does not exist or holds no valid checkpoint.
	ReasonCheckpointNotFound = "CheckpointNotFound"
	// ReasonRestoreFailed: the init container that brings a checkpoint back failed.
	ReasonRestoreFailed = "RestoreFailed"
	// ReasonCheckpointNotStored: the training ended before its last checkpoint was in the storage.
	ReasonCheckpointNotStored = "CheckpointNotStored"
	// ReasonAgentCrashing: the checkpoint agent ends again and again.
	ReasonAgentCrashing = "AgentCrashing"
	// ReasonObjectConflict: an object of a child's name exists and belongs to somebody else.
	ReasonObjectConflict = "ObjectConflict"
	// ReasonInvalidSpec: the API server refuses an object made from the spec.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonForbidden: the API server does not let an object be created, for example for a quota.
	ReasonForbidden = "Forbidden"
	// ReasonWorkersStarting: pods are being created or started.
	ReasonWorkersStarting = "WorkersStarting"
	// ReasonWorkersRunning: all workers run.
	ReasonWorkersRunning = "WorkersRunning"
	// ReasonUnschedulable: a pod fits on no node.
	ReasonUnschedulable = "Unschedulable"
	// ReasonImagePullFailed: the image of a pod cannot be pulled.
	ReasonImagePullFailed = "ImagePullFailed"
	// ReasonContainerConfigError: a container cannot be created from its settings, for example a missing Secret.
	ReasonContainerConfigError = "ContainerConfigError"
	// ReasonPodCreationFailed: the API server refuses the pods.
	ReasonPodCreationFailed = "PodCreationFailed"
	// ReasonQuotaExceeded: a ResourceQuota of the namespace does not allow the pods, or another object of the job.
	ReasonQuotaExceeded = "QuotaExceeded"
	// ReasonPodSecurityViolated: the namespace's Pod Security level does not allow the pods.
	ReasonPodSecurityViolated = "PodSecurityViolated"
	// ReasonSuspended: spec.suspend is true.
	ReasonSuspended = "SuspendedBySpec"
	// ReasonResumed: spec.suspend is no longer true.
	ReasonResumed = "Resumed"
	// ReasonNotSuspended: spec.suspend is not true.
	ReasonNotSuspended = "NotSuspended"
	// ReasonRescaled: spec.numWorkers of an elastic job changed, and the whole job is started again for it.
	ReasonRescaled = "Rescaled"
	// ReasonRescaling: spec.numWorkers of an elastic job changed; the training goes on while workers come or go.
	ReasonRescaling = "Rescaling"
	// ReasonWorkerLost: an elastic training goes on with fewer workers until one that was lost is replaced.
	ReasonWorkerLost = "WorkerLost"
	// ReasonBackoffLimitExceeded: there were more failures than backoffLimit.
	ReasonBackoffLimitExceeded = "BackoffLimitExceeded"
	// ReasonNonRetryableExitCode: a worker ended with an exit code after which there is no restart.
	ReasonNonRetryableExitCode = "NonRetryableExitCode"
	// ReasonRestartPolicyNever: a worker failed and restartPolicy is Never.
	ReasonRestartPolicyNever = "RestartPolicyNever"
	// ReasonDeadlineExceeded: the job ran longer than activeDeadlineSeconds.
	ReasonDeadlineExceeded = "DeadlineExceeded"
	// ReasonTrainingCompleted: all workers ended with exit code 0.
	ReasonTrainingCompleted = "TrainingCompleted"
	// ReasonTargetReached: the training ended early because successPolicy's target was reached.
	ReasonTargetReached = "TargetReached"
	// ReasonEarlyStopped: the training ended early because it no longer improved.
	ReasonEarlyStopped = "EarlyStopped"
)

// Labels and annotations of TrainingJobs and their children.
const (
	// LabelTrainingJob on every child is the name of its TrainingJob.
	LabelTrainingJob = "training-job"
	// LabelTrainingJobCompact is the same under the name that some tools look for.
	LabelTrainingJobCompact = "trainingjob"
	// LabelReplicaID on a worker pod is its replica, from 0.
	LabelReplicaID = "replica-id"
	// AnnotationGangScheduler on a TrainingJob says who starts its workers together: volcano, coscheduling, kubernetes or
	// none. Without it spec.scheduling.schedulerName says it. On the Job it is who does.
	AnnotationGangScheduler = "ml.example.com/gang-scheduler"
	// AnnotationAttempt on the Job and its pods is the number of restarts before it.
	AnnotationAttempt = "ml.example.com/restart-attempt"
	// AnnotationStart on the Job and its pods is the number of times that workers of the TrainingJob were started before. Unlike
	// that of restarts it is another one when a job is resumed, so that no two Jobs have the same.
	AnnotationStart = "ml.example.com/start"
	// AnnotationCheckpointNow on a TrainingJob asks for a checkpoint at once. Each new value is one request; its outcome
	// is in status.checkpoint.request.
	AnnotationCheckpointNow = "ml.example.com/checkpoint-now"
)
