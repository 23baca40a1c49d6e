package v1alpha1

// Condition types of the kinds in this package.
const (
	// ConditionReady is True while the operator acts on the object and what it describes is in working order.
	// It is the condition that kubectl wait and delivery tools look at.
	ConditionReady = "Ready"
	// ConditionQueued of an AIJob is True while it waits in its queue; its message says for what.
	ConditionQueued = "Queued"
	// ConditionScheduled of an AIJob is True once resources are reserved for all its pods.
	ConditionScheduled = "Scheduled"
	// ConditionComplete of an AIJob or AgentWorkflow is True when it has ended well.
	ConditionComplete = "Complete"
	// ConditionFailed of an AIJob or AgentWorkflow is True when it has failed for good.
	ConditionFailed = "Failed"
	// ConditionWorkersReady of an AIJobQueue is True while its pooled workers are as many and as ready as its tasks need.
	ConditionWorkersReady = "WorkersReady"
)

// Reasons of the conditions.
const (
	// ReasonReady: everything is in working order.
	ReasonReady = "Ready"
	// ReasonQueueNotFound: the AIJobQueue that the object names does not exist.
	ReasonQueueNotFound = "QueueNotFound"
	// ReasonClusterNotFound: the ComputeCluster that the object names does not exist.
	ReasonClusterNotFound = "ClusterNotFound"
	// ReasonAgentNotFound: an Agent that the workflow names does not exist.
	ReasonAgentNotFound = "AgentNotFound"
	// ReasonInvalidReference: an input refers to an output that the Agent does not have, or a condition is wrong.
	ReasonInvalidReference = "InvalidReference"
	// ReasonInvalidAgent: an Agent contradicts itself, so that no stage can be made from it.
	ReasonInvalidAgent = "InvalidAgent"
	// ReasonInvalidTrigger: the trigger of the workflow can never start it.
	ReasonInvalidTrigger = "InvalidTrigger"
	// ReasonStageFailed: a stage of the workflow failed for good.
	ReasonStageFailed = "StageFailed"
	// ReasonStagesEnded: all stages of the workflow have Succeeded or were Skipped.
	ReasonStagesEnded = "StagesEnded"
	// ReasonInsufficientCapacity: the pods do not all fit now.
	ReasonInsufficientCapacity = "InsufficientCapacity"
	// ReasonQuotaReached: a limit of the queue is reached.
	ReasonQuotaReached = "QuotaReached"
	// ReasonPreempted: a job of higher priority took the place.
	ReasonPreempted = "Preempted"
	// ReasonTimeout: the job ran longer than timeoutSeconds.
	ReasonTimeout = "Timeout"
	// ReasonRetriesExhausted: the job failed more often than retryPolicy allows.
	ReasonRetriesExhausted = "RetriesExhausted"
	// ReasonCancelled: spec.cancel is true, or the AIJob is being deleted.
	ReasonCancelled = "Cancelled"
	// ReasonQueueSuspended: the queue admits no further job.
	ReasonQueueSuspended = "QueueSuspended"
	// ReasonWaitingForPreemption: jobs of lower priority are giving their place back.
	ReasonWaitingForPreemption = "WaitingForPreemption"
	// ReasonWaitingBehindGang: the job would delay a gang that waits longer or has a higher priority.
	ReasonWaitingBehindGang = "WaitingBehindGang"
	// ReasonNoMatchingNodes: no node matches the selector.
	ReasonNoMatchingNodes = "NoMatchingNodes"
	// ReasonNodesNotReady: some nodes, or all, take no pods.
	ReasonNodesNotReady = "NodesNotReady"
	// ReasonPriorityClassNotFound: the cluster has no PriorityClass of the name.
	ReasonPriorityClassNotFound = "PriorityClassNotFound"
)

// Reasons of the condition WorkersReady.
const (
	// ReasonWorkersReady: all workers that there should be are ready.
	ReasonWorkersReady = "WorkersReady"
	// ReasonScaledToZero: there is nothing to do, and no worker.
	ReasonScaledToZero = "ScaledToZero"
	// ReasonWorkersStarting: workers are being started.
	ReasonWorkersStarting = "WorkersStarting"
	// ReasonJobServiceUnreachable: the job service does not say how many tasks there are. The workers stay as many as they are.
	ReasonJobServiceUnreachable = "JobServiceUnreachable"
	// ReasonImageCannotBePulled: the image of the workers cannot be had.
	ReasonImageCannotBePulled = "ImageCannotBePulled"
	// ReasonWorkersFail: the workers' container ends again and again, or cannot be started.
	ReasonWorkersFail = "WorkersFail"
	// ReasonWorkersUnschedulable: no node has room for a worker.
	ReasonWorkersUnschedulable = "WorkersUnschedulable"
	// ReasonWorkersRefused: the cluster does not accept the workers' pods, for example because of a quota.
	ReasonWorkersRefused = "WorkersRefused"
	// ReasonNameTaken: an object of the name that the workers need is somebody else's.
	ReasonNameTaken = "NameTaken"
)

// Annotations and labels of AIJobs.
const (
	// AnnotationRequeue on an AIJob in phase DeadLetter puts it back into its queue with all its retries. The operator
	// removes it once that is done.
	AnnotationRequeue = "aiplatform.example.com/requeue"
	// LabelAIJob on every child of an AIJob is the name of the AIJob.
	LabelAIJob = "aiplatform.example.com/job"
	// LabelQueue on an AIJob and its pods is the name of the queue.
	LabelQueue = "aiplatform.example.com/queue"
	// AnnotationUser on an AIJob or a TrainingJob is the user whose limits in its queue count. The operator sets it from the request
	// that creates the job.
	AnnotationUser = "aiplatform.example.com/user"
	// LabelServiceJob on an AIJob that the job service made is the ID of its job.
	LabelServiceJob = "aiplatform.example.com/service-job"
	// LabelWorkflow on an AIJob is the name of the AgentWorkflow that made it.
	LabelWorkflow = "aiplatform.example.com/workflow"
	// LabelWorkerPool on the Deployment of pooled workers and on their pods is the name of the queue.
	LabelWorkerPool = "aiplatform.example.com/worker-pool"
	// LabelStage on an AIJob is the stage of the AgentWorkflow for which it was made.
	LabelStage = "aiplatform.example.com/stage"
	// LabelWorkflowRun on an AIJob is the number of the start of the AgentWorkflow for which it was made.
	LabelWorkflowRun = "aiplatform.example.com/workflow-run"
)
