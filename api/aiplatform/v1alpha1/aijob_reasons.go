package v1alpha1

// Reasons of AIJobs, in status.reason and in their conditions, beside those of what they wait for.
const (
	// ReasonQueued: the job waits, and no decision on it was made yet.
	ReasonQueued = "Queued"
	// ReasonAdmitted: the job has a place for all its pods, which are being started.
	ReasonAdmitted = "Admitted"
	// ReasonRunning: all pods run.
	ReasonRunning = "Running"
	// ReasonCompleted: all pods ended with exit code 0.
	ReasonCompleted = "Completed"
	// ReasonRequeued: the job came back from DeadLetter.
	ReasonRequeued = "Requeued"
	// ReasonRetrying: the pause before the next try is over.
	ReasonRetrying = "Retrying"
)

// Reasons of failures that are retried, and counted as retries.
const (
	// ReasonProgramFailed: a container ended with an exit code other than 0.
	ReasonProgramFailed = "ProgramFailed"
	// ReasonProgramKilled: a container was killed by a signal.
	ReasonProgramKilled = "ProgramKilled"
	// ReasonOutOfMemory: a container used more memory than its limit.
	ReasonOutOfMemory = "OutOfMemory"
	// ReasonStorageLimitExceeded: a pod wrote more to its node than its limit.
	ReasonStorageLimitExceeded = "StorageLimitExceeded"
	// ReasonContainerStartFailed: a container's program could not be started.
	ReasonContainerStartFailed = "ContainerStartFailed"
	// ReasonImagePullFailed: a pod's image cannot be pulled. While the job is Scheduled it may still be; after minutes the try has failed.
	ReasonImagePullFailed = "ImagePullFailed"
	// ReasonPeerLost: members of a gang ended with exit code 75, having lost another, which did not fail itself.
	ReasonPeerLost = "PeerLost"
)

// Reasons of failures that no further try would mend: the job is Failed.
const (
	// ReasonInvalidImageName: spec.image is no image name.
	ReasonInvalidImageName = "InvalidImageName"
	// ReasonContainerConfigError: a container lacks what it needs, for example a Secret that spec.env names.
	ReasonContainerConfigError = "ContainerConfigError"
	// ReasonPodInvalid: the API server refuses the pods as invalid.
	ReasonPodInvalid = "PodInvalid"
	// ReasonPodSecurityViolation: the Pod Security level of the namespace forbids the pods.
	ReasonPodSecurityViolation = "PodSecurityViolation"
	// ReasonQuotaTooSmall: a ResourceQuota of the namespace is less than what the job needs.
	ReasonQuotaTooSmall = "QuotaTooSmall"
)

// Reasons for which a job gives its place back without counting a retry.
const (
	// ReasonResourceQuotaExceeded: a ResourceQuota of the namespace leaves no room for the pods now.
	ReasonResourceQuotaExceeded = "ResourceQuotaExceeded"
	// ReasonPodRejected: an admission controller of the cluster refuses the pods.
	ReasonPodRejected = "PodRejected"
	// ReasonObjectConflict: an object of the name of one of the job's is somebody else's.
	ReasonObjectConflict = "ObjectConflict"
	// ReasonPodsNotPlaced: pods were not bound to their nodes in time.
	ReasonPodsNotPlaced = "PodsNotPlaced"
	// ReasonPodsNotStarted: pods did not start in time.
	ReasonPodsNotStarted = "PodsNotStarted"
	// ReasonPodDeleted: somebody deleted a pod.
	ReasonPodDeleted = "PodDeleted"
	// ReasonPodPreempted: kube-scheduler took a pod's place for a pod of higher priority.
	ReasonPodPreempted = "PodPreempted"
	// ReasonEvicted: a pod was evicted through the API, as kubectl drain does.
	ReasonEvicted = "Evicted"
	// ReasonNodeLost: a pod was lost with its node.
	ReasonNodeLost = "NodeLost"
	// ReasonNodeShutdown: a pod's node was shut down.
	ReasonNodeShutdown = "NodeShutdown"
	// ReasonNodePressure: the kubelet evicted a pod because its node was short of a resource.
	ReasonNodePressure = "NodePressure"
	// ReasonNodeTainted: a taint with the effect NoExecute drove a pod from its node.
	ReasonNodeTainted = "NodeTainted"
	// ReasonNodeRefused: the kubelet of its node refused a pod.
	ReasonNodeRefused = "NodeRefused"
	// ReasonDisrupted: a pod was lost in another way that is not its program's doing.
	ReasonDisrupted = "Disrupted"
)

// AnnotationRetriesBefore on an AIJob is the number of retries that do not count any more, because the job was requeued from
// DeadLetter after them. The operator sets it.
const AnnotationRetriesBefore = "aiplatform.example.com/retries-before-requeue"

// Labels of the pods of an AIJob, beside LabelAIJob and LabelQueue.
const (
	// LabelMember is the index of a pod in its job, from 0.
	LabelMember = "aiplatform.example.com/member"
	// LabelAttempt is the try that a pod belongs to, from 0. Each new try has a higher number, whatever the last one ended of.
	LabelAttempt = "aiplatform.example.com/attempt"
)
