package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SpotInstanceVMStatus is what the operator observed.
type SpotInstanceVMStatus struct {
	// observedGeneration is the metadata.generation that this status speaks of.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are Ready, Allowed, CapacityAvailable and CredentialsValid, each with a reason and a message.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=4,displayName="Conditions",xDescriptors="urn:alm:descriptor:io.kubernetes.conditions"
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// instances is the number of instances that exist or are being created.
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=1,displayName="Instances",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	Instances int32 `json:"instances"`

	// readyInstances is the number of instances that are ready nodes.
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=2,displayName="Ready nodes",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	ReadyInstances int32 `json:"readyInstances"`

	// provisionedInstances are the instances, from the decision to create one until it is known to be gone.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=1000
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=3,displayName="Instances in detail"
	ProvisionedInstances []ProvisionedInstance `json:"provisionedInstances,omitempty"`

	// zones are what was learned of the zones so far, for each zone and machine type that instances were asked for in, at
	// most 32. The next instance is tried where it will probably cost least, interruptions included.
	// +listType=map
	// +listMapKey=zone
	// +listMapKey=machineType
	// +kubebuilder:validation:MaxItems=32
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=5,displayName="What was learned of the zones"
	Zones []ZoneHistory `json:"zones,omitempty"`
}

// ProvisionedInstance is one instance of a SpotInstanceVM.
type ProvisionedInstance struct {
	// name of the instance.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`

	// instanceID is the number that the provider gave the instance.
	InstanceID string `json:"instanceID,omitempty"`

	// requestID makes the request to create the instance idempotent: it is written here before the request is sent.
	RequestID string `json:"requestID,omitempty"`

	// zone of the instance.
	Zone string `json:"zone,omitempty"`

	// machineType of the instance. Empty for one that was created when there was one machine type only: spec.gcp.machineType.
	MachineType string `json:"machineType,omitempty"`

	// provisioningModel of the instance: SPOT, or STANDARD after a fallback.
	ProvisioningModel ProvisioningModel `json:"provisioningModel,omitempty"`

	// state of the instance in the provider's words (PROVISIONING, STAGING, RUNNING, STOPPING, TERMINATED, SUSPENDED and
	// others), or PLANNED before the provider has granted it, or DELETING once its deletion is decided.
	State InstanceState `json:"state,omitempty"`

	// joinedCluster says whether the instance is a node of the cluster.
	JoinedCluster bool `json:"joinedCluster,omitempty"`

	// nodeName is the name of its node.
	NodeName string `json:"nodeName,omitempty"`

	// internalIP is the address of the instance inside its network.
	InternalIP string `json:"internalIP,omitempty"`

	// externalIP is the address of the instance on the Internet, if it has one.
	ExternalIP string `json:"externalIP,omitempty"`

	// assignedJob is the job for which the instance was created, as kind/name, for example SpotInstanceJob/bert.
	AssignedJob string `json:"assignedJob,omitempty"`

	// creationTime is when the instance was created.
	CreationTime *metav1.Time `json:"creationTime,omitempty"`

	// readyTime is when its node was first ready, with all its GPUs.
	ReadyTime *metav1.Time `json:"readyTime,omitempty"`

	// preemptionNoticeTime is when the provider said that it takes the instance back.
	PreemptionNoticeTime *metav1.Time `json:"preemptionNoticeTime,omitempty"`

	// message is the last error that the provider or the instance reported.
	Message string `json:"message,omitempty"`
}

// InstanceState is the state of an instance. The provider may report others than those named here.
type InstanceState string

// States of an instance.
const (
	// InstancePlanned: the decision is written down, and the provider has not yet granted the instance.
	InstancePlanned InstanceState = "PLANNED"
	// InstanceProvisioning: the provider reserves resources.
	InstanceProvisioning InstanceState = "PROVISIONING"
	// InstanceStaging: the instance is prepared for its first start.
	InstanceStaging InstanceState = "STAGING"
	// InstanceRunning: the instance runs.
	InstanceRunning InstanceState = "RUNNING"
	// InstanceStopping: the instance is being stopped, for example by preemption.
	InstanceStopping InstanceState = "STOPPING"
	// InstanceTerminated: the instance is stopped.
	InstanceTerminated InstanceState = "TERMINATED"
	// InstanceSuspended: the instance is suspended.
	InstanceSuspended InstanceState = "SUSPENDED"
	// InstanceDeleting: its deletion is decided and not yet confirmed.
	InstanceDeleting InstanceState = "DELETING"
)
