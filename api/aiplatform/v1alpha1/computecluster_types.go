package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ComputeCluster is a group of this cluster's nodes with a limit on what runs there.
//
// The name is at most 63 characters and a DNS label, because jobs refer to it by label.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=computeclusters,singular=computecluster,scope=Cluster,shortName=cc,categories=ml
// +kubebuilder:printcolumn:name="Health",type=string,JSONPath=`.status.health`,description="Health of the nodes"
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.readyNodes`,description="Nodes that are ready"
// +kubebuilder:printcolumn:name="GPUs",type=integer,JSONPath=`.status.totalGPUs`,description="GPUs of the nodes"
// +kubebuilder:printcolumn:name="Free",type=integer,JSONPath=`.status.freeGPUs`,description="GPUs not in use"
// +kubebuilder:printcolumn:name="Jobs",type=integer,JSONPath=`.status.runningJobs`,description="Jobs that run"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether jobs are placed here"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="MaxJobs",type=integer,priority=1,JSONPath=`.spec.capacity.maxJobs`,description="Jobs that may run at a time"
// +kubebuilder:printcolumn:name="MaxGPUs",type=integer,priority=1,JSONPath=`.spec.capacity.maxGPUs`,description="GPUs that jobs may hold"
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why it is or is not ready"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",fieldPath=".spec",message="metadata.name: must be at most 63 characters of a-z, 0-9 and '-', because it is the value of a label: choose a shorter or simpler name"
// +operator-sdk:csv:customresourcedefinitions:displayName="Compute Cluster",order=6,resources={{Node,v1}}
type ComputeCluster struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec says which nodes belong to it and what may run there. It can be changed at any time; jobs that run stay.
	// +required
	Spec ComputeClusterSpec `json:"spec"`

	// status is what the operator observed. It is written by the operator only.
	Status ComputeClusterStatus `json:"status,omitzero"`
}

// ComputeClusterList is a list of ComputeClusters.
//
// +kubebuilder:object:root=true
type ComputeClusterList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard list metadata.
	metav1.ListMeta `json:"metadata,omitzero"`

	// items are the ComputeClusters.
	// +required
	Items []ComputeCluster `json:"items"`
}

// StatusConditions gives access to the conditions in the status.
func (c *ComputeCluster) StatusConditions() *[]metav1.Condition { return &c.Status.Conditions }

// ComputeClusterSpec says which nodes belong to the cluster and what may run there.
//
// +kubebuilder:validation:XValidation:rule="!has(self.minNodes) || !has(self.maxNodes) || self.minNodes <= self.maxNodes",fieldPath=".minNodes",messageExpression="'spec.minNodes: %d is more than maxNodes %d: lower it or raise maxNodes'.format([self.minNodes, self.maxNodes])"
type ComputeClusterSpec struct {
	// nodeSelector are the labels of the nodes that belong to it, at most 64. Default: none, so that all nodes do.
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.size() <= 316 && k.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$'))",message="spec.nodeSelector: has a key that is no label key: use letters, digits, -, _ and ., after an optional prefix and /"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=1,displayName="Node labels"
	NodeSelector map[string]LabelValue `json:"nodeSelector,omitempty"`

	// capacity limits what runs in the cluster, whatever its nodes could hold.
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=2,displayName="Limits"
	Capacity *ClusterCapacity `json:"capacity,omitempty"`

	// minNodes is the number of ready nodes below which the cluster counts as Degraded, at least 0. Default 0.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=5000
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=5,displayName="Ready nodes at least",xDescriptors="urn:alm:descriptor:com.tectonic.ui:number"
	MinNodes *int32 `json:"minNodes,omitempty"`

	// maxNodes is the number of nodes that jobs may use, at least 1; of more nodes the oldest are used. Default: all.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=5000
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=6,displayName="Nodes at most",xDescriptors="urn:alm:descriptor:com.tectonic.ui:number"
	MaxNodes *int32 `json:"maxNodes,omitempty"`
}

// ClusterCapacity limits what runs in a ComputeCluster.
//
// +kubebuilder:validation:MinProperties=1
type ClusterCapacity struct {
	// maxJobs is the number of jobs that may run at a time, 1 to 100000. Default: no limit.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=3,displayName="Jobs at a time",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:number","urn:alm:descriptor:com.tectonic.ui:fieldGroup:capacity"}
	MaxJobs *int32 `json:"maxJobs,omitempty"`

	// maxGPUs is the number of GPUs that running jobs may hold together, 0 to 100000. Default: no limit.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=4,displayName="GPUs in use at most",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:number","urn:alm:descriptor:com.tectonic.ui:fieldGroup:capacity"}
	MaxGPUs *int32 `json:"maxGPUs,omitempty"`
}

// ComputeClusterStatus is what the operator observed.
type ComputeClusterStatus struct {
	// observedGeneration is the metadata.generation that this status speaks of.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are Ready, with a reason and a message.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=7,displayName="Conditions",xDescriptors="urn:alm:descriptor:io.kubernetes.conditions"
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// health of the nodes: Healthy, Degraded (some are not ready, or there are fewer than minNodes), Unhealthy (none is
	// ready) or Unknown.
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=1,displayName="Health",xDescriptors="urn:alm:descriptor:io.kubernetes.phase"
	Health ClusterHealth `json:"health,omitempty"`

	// totalNodes is the number of nodes that match the selector.
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=3,displayName="Nodes",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	TotalNodes int32 `json:"totalNodes"`

	// readyNodes is how many of them are ready.
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=2,displayName="Ready nodes",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	ReadyNodes int32 `json:"readyNodes"`

	// totalGPUs is the number of GPUs of the ready nodes.
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=4,displayName="GPUs",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	TotalGPUs int32 `json:"totalGPUs"`

	// freeGPUs is how many of them no pod has requested.
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=5,displayName="Free GPUs",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	FreeGPUs int32 `json:"freeGPUs"`

	// runningJobs is the number of jobs that run.
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=6,displayName="Jobs that run",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	RunningJobs int32 `json:"runningJobs"`
}

// ClusterHealth is the health of a ComputeCluster.
// +kubebuilder:validation:Enum=Healthy;Degraded;Unhealthy;Unknown
type ClusterHealth string

// The states of health.
const (
	ClusterHealthy   ClusterHealth = "Healthy"
	ClusterDegraded  ClusterHealth = "Degraded"
	ClusterUnhealthy ClusterHealth = "Unhealthy"
	ClusterUnknown   ClusterHealth = "Unknown"
)
