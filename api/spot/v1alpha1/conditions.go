package v1alpha1

// Condition types of SpotInstanceJob and SpotInstanceVM.
const (
	// ConditionReady is True while the operator acts on the object and what it describes is in working order.
	// It is the condition that kubectl wait and delivery tools look at.
	ConditionReady = "Ready"
	// ConditionCapacityAvailable of a SpotInstanceJob is True when every replica has a node, of a SpotInstanceVM when
	// the provider last granted the instances that were asked for.
	ConditionCapacityAvailable = "CapacityAvailable"
	// ConditionCheckpointAgentAvailable of a SpotInstanceJob is True when something in the cluster takes checkpoints.
	ConditionCheckpointAgentAvailable = "CheckpointAgentAvailable"
	// ConditionComplete of a SpotInstanceJob is True when one replica has ended well.
	ConditionComplete = "Complete"
	// ConditionFailed of a SpotInstanceJob is True when it has failed for good.
	ConditionFailed = "Failed"
	// ConditionCredentialsValid of a SpotInstanceVM is True when the provider accepted the credentials.
	ConditionCredentialsValid = "CredentialsValid"
)

// Reasons of the conditions.
const (
	// ReasonReady: everything is in working order.
	ReasonReady = "Ready"
	// ReasonProvisioning: instances are being created or are joining the cluster.
	ReasonProvisioning = "Provisioning"
	// ReasonZoneExhausted: no zone had an instance of this kind to give.
	ReasonZoneExhausted = "ZoneExhausted"
	// ReasonQuotaExceeded: the project's quota does not allow the instance.
	ReasonQuotaExceeded = "QuotaExceeded"
	// ReasonMaxInstancesReached: maxInstances are in use.
	ReasonMaxInstancesReached = "MaxInstancesReached"
	// ReasonSecretNotFound: a Secret that the object names does not exist, lacks a key, or lies in another namespace.
	ReasonSecretNotFound = "SecretNotFound"
	// ReasonSpotInstanceVMNotFound: the SpotInstanceVM that the job names does not exist.
	ReasonSpotInstanceVMNotFound = "SpotInstanceVMNotFound"
	// ReasonPermissionDenied: the provider does not accept the credentials, or does not let them do what is needed.
	ReasonPermissionDenied = "PermissionDenied"
	// ReasonInvalidSpec: the provider does not know or take what the spec describes.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonProviderUnavailable: the provider does not answer, or answers that it has failed.
	ReasonProviderUnavailable = "ProviderUnavailable"
	// ReasonJoinFailed: an instance did not become a ready node in time.
	ReasonJoinFailed = "JoinFailed"
	// ReasonPodDoesNotFit: a pod requests more than an instance has, or something else than room keeps it off.
	ReasonPodDoesNotFit = "PodDoesNotFit"
	// ReasonDeleting: the object is being deleted, and its instances first.
	ReasonDeleting = "Deleting"
	// ReasonPreempted: an instance was taken back by its provider.
	ReasonPreempted = "Preempted"
)
