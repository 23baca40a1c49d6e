package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dcnlab/spot-training-operator/api/podtemplate"
)

// Agent is a program with named inputs and outputs, from which an AgentWorkflow makes its stages.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=agents,singular=agent,shortName=ag,categories=ml
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.jobType`,description="Kind of workload"
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.spec.image`,description="Image that is run"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether workflows can use the agent"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Workflows",type=integer,priority=1,JSONPath=`.status.workflows`,description="Workflows that use the agent"
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why it is or is not ready"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",fieldPath=".spec",message="metadata.name: must be at most 63 characters of a-z, 0-9 and '-', because it is the value of a label: choose a shorter or simpler name"
// +operator-sdk:csv:customresourcedefinitions:displayName="Agent",order=7,resources={{AgentWorkflow,v1alpha1}}
type Agent struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec says what the agent runs. A change counts for stages that start later.
	// +required
	Spec AgentSpec `json:"spec,omitzero"`

	// status is what the operator observed. It is written by the operator only.
	Status AgentStatus `json:"status,omitzero"`
}

// AgentList is a list of Agents.
//
// +kubebuilder:object:root=true
type AgentList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard list metadata.
	metav1.ListMeta `json:"metadata,omitzero"`

	// items are the Agents.
	// +required
	Items []Agent `json:"items"`
}

// StatusConditions gives access to the conditions in the status.
func (a *Agent) StatusConditions() *[]metav1.Condition { return &a.Status.Conditions }

// AgentSpec says what an agent runs, what it needs and what it yields.
//
// +kubebuilder:validation:XValidation:rule="has(self.serviceAccountName) || !has(self.volumes) || !self.volumes.exists(v, has(v.projected) && has(v.projected.sources) && v.projected.sources.exists(s, has(s.serviceAccountToken)))",fieldPath=".volumes",message="spec.volumes: a serviceAccountToken needs a ServiceAccount that you choose: set spec.serviceAccountName"
// +kubebuilder:validation:XValidation:rule="!has(self.podTemplate) || !has(self.podTemplate.resourceClaims) || self.podTemplate.resourceClaims.size() == 0",fieldPath=".podTemplate.resourceClaims",message="spec.podTemplate.resourceClaims: queues do not know which nodes have the devices: remove them"
// +kubebuilder:validation:XValidation:rule="!has(self.podTemplate) || !has(self.podTemplate.topologySpreadConstraints) || self.podTemplate.topologySpreadConstraints.all(c, c.whenUnsatisfiable != 'DoNotSchedule')",fieldPath=".podTemplate.topologySpreadConstraints",message="spec.podTemplate.topologySpreadConstraints: queues cannot keep DoNotSchedule: use ScheduleAnyway"
type AgentSpec struct {
	// description says in a sentence what the agent does.
	// +kubebuilder:validation:MaxLength=1024
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=1,displayName="Description",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	Description string `json:"description,omitempty"`

	// jobType is the kind of workload: inference, the default, training, simulation or evaluation.
	// +kubebuilder:default=inference
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=2,displayName="Type of job",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:select:inference","urn:alm:descriptor:com.tectonic.ui:select:training","urn:alm:descriptor:com.tectonic.ui:select:simulation","urn:alm:descriptor:com.tectonic.ui:select:evaluation"}
	JobType JobType `json:"jobType,omitempty"`

	// image is the container image to run.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^\S+$`
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=3,displayName="Image",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	Image string `json:"image,omitempty"`

	// command is the entry point of the container. Default: that of the image.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=8192
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=4,displayName="Command",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	Command []string `json:"command,omitempty"`

	// args are the arguments of the entry point.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=8192
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=5,displayName="Arguments",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	Args []string `json:"args,omitempty"`

	// env are environment variables of the container, at most 256.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:XValidation:rule="self.all(e, e.name != '')",message="spec.env: a variable has an empty name: give it one or remove it"
	// +kubebuilder:validation:XValidation:rule="self.all(e, !has(e.value) || e.value == '' || !has(e.valueFrom))",message="spec.env: a variable has both value and valueFrom: keep one of the two"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=6,displayName="Environment variables",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	Env []corev1.EnvVar `json:"env,omitempty"`

	// resources are the requests and limits of the agent's pod. Default: none, so that it runs where there is room left.
	// +kubebuilder:validation:XValidation:rule="!has(self.limits) || self.limits.size() <= 64",fieldPath=".limits",message="spec.resources.limits: names more than 64 resources: leave out those that the pod does not need"
	// +kubebuilder:validation:XValidation:rule="!has(self.requests) || self.requests.size() <= 64",fieldPath=".requests",message="spec.resources.requests: names more than 64 resources: leave out those that the pod does not need"
	// +kubebuilder:validation:XValidation:rule="!has(self.limits) || ['cpu', 'memory', 'ephemeral-storage', 'nvidia.com/gpu'].all(k, !(k in self.limits) || (isQuantity(string(self.limits[k])) && quantity(string(self.limits[k])).compareTo(quantity('0')) >= 0))",fieldPath=".limits",message="spec.resources.limits: has an amount below 0 or that is no number: write for example cpu: 500m, memory: 32Gi"
	// +kubebuilder:validation:XValidation:rule="!has(self.requests) || ['cpu', 'memory', 'ephemeral-storage', 'nvidia.com/gpu'].all(k, !(k in self.requests) || (isQuantity(string(self.requests[k])) && quantity(string(self.requests[k])).compareTo(quantity('0')) >= 0))",fieldPath=".requests",message="spec.resources.requests: has an amount below 0 or that is no number: write for example cpu: 500m, memory: 32Gi"
	// +kubebuilder:validation:XValidation:rule="!has(self.requests) || !has(self.limits) || ['cpu', 'memory', 'ephemeral-storage'].all(k, !(k in self.requests) || !(k in self.limits) || !isQuantity(string(self.requests[k])) || !isQuantity(string(self.limits[k])) || quantity(string(self.requests[k])).compareTo(quantity(string(self.limits[k]))) <= 0)",fieldPath=".requests",message="spec.resources.requests: asks for more cpu, memory or ephemeral-storage than the limit: lower the request or raise the limit"
	// +kubebuilder:validation:XValidation:rule="!has(self.requests) || !has(self.limits) || !('nvidia.com/gpu' in self.requests) || !('nvidia.com/gpu' in self.limits) || string(self.requests['nvidia.com/gpu']) == string(self.limits['nvidia.com/gpu'])",fieldPath=".requests",message="spec.resources.requests: asks for another number of nvidia.com/gpu than the limit, but GPUs cannot be overcommitted: set both to the same number or remove one"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=7,displayName="Resources of the pod",xDescriptors="urn:alm:descriptor:com.tectonic.ui:resourceRequirements"
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// inputs are the values that a stage gives the agent; the container sees each as INPUT_ and its name in upper snake
	// case, for example INPUT_TEXT. At most 16.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=8,displayName="Inputs"
	Inputs []AgentInput `json:"inputs,omitempty"`

	// outputs are the values that the agent yields; the container writes them as a JSON object to its termination
	// message (/dev/termination-log, at most 4096 bytes). At most 16.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=9,displayName="Outputs"
	Outputs []AgentOutput `json:"outputs,omitempty"`

	// retryPolicy says how often and after which delay a stage is tried again when it has failed.
	// +kubebuilder:default={}
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=10,displayName="Retry policy",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	RetryPolicy RetryPolicy `json:"retryPolicy,omitzero"`

	// timeoutSeconds is the time that one try of a stage may take before it counts as failed, 1 to 3153600000
	// (100 years). Default: no limit.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3153600000
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=11,displayName="Time limit of a try in seconds",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:number","urn:alm:descriptor:com.tectonic.ui:advanced"}
	TimeoutSeconds *int64 `json:"timeoutSeconds,omitempty"`

	// nodeSelector are labels that a node must have. At most 64.
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=64
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=12,displayName="Node labels",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	NodeSelector map[string]LabelValue `json:"nodeSelector,omitempty"`

	// tolerations of node taints, at most 64.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.operator) || t.operator in ['', 'Exists', 'Equal', 'Lt', 'Gt'])",message="spec.tolerations: has an unknown operator: use Exists, or Equal with a value"
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.effect) || t.effect in ['', 'NoSchedule', 'PreferNoSchedule', 'NoExecute'])",message="spec.tolerations: has an unknown effect: use NoSchedule, PreferNoSchedule or NoExecute, or leave it out for all of them"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=13,displayName="Tolerations",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// serviceAccountName is the ServiceAccount of the pods. Default: the namespace's default one, whose token is not mounted.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=14,displayName="Service account",xDescriptors={"urn:alm:descriptor:io.kubernetes:ServiceAccount","urn:alm:descriptor:com.tectonic.ui:advanced"}
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	PodOptions `json:",inline"`

	// source is the code of the program: a ConfigMap, a commit of a git repository, an OCI artifact or an archive, unpacked before the
	// program starts and its working directory unless workingDir names another. Default: none, and the image has the code.
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Source",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	Source *podtemplate.Source `json:"source,omitempty"`

	podtemplate.Settings `json:",inline"`
}

// ParameterName is the name of an input or output.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=40
// +kubebuilder:validation:Pattern=`^[A-Za-z_][A-Za-z0-9_-]*$`
type ParameterName string

// AgentInput is a value that a stage gives an agent.
//
// +kubebuilder:validation:XValidation:rule="!has(self.default) || !has(self.required) || !self.required",fieldPath=".required",message="required: has no use beside a default: remove one of the two"
type AgentInput struct {
	// name of the input: letters, digits, _ and -, at most 40.
	// +required
	Name ParameterName `json:"name,omitempty"`

	// description says in a sentence what the input is for.
	// +kubebuilder:validation:MaxLength=1024
	Description string `json:"description,omitempty"`

	// required lets a workflow fail that does not give the input. Default: true unless there is a default.
	Required *bool `json:"required,omitempty"`

	// default is the value when a stage does not give the input.
	// +kubebuilder:validation:MaxLength=4096
	Default *string `json:"default,omitempty"`
}

// AgentOutput is a value that an agent yields.
type AgentOutput struct {
	// name of the output: letters, digits, _ and -, at most 40.
	// +required
	Name ParameterName `json:"name,omitempty"`

	// description says in a sentence what the output is.
	// +kubebuilder:validation:MaxLength=1024
	Description string `json:"description,omitempty"`
}

// AgentStatus is what the operator observed.
type AgentStatus struct {
	// observedGeneration is the metadata.generation that this status speaks of.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are Ready, with a reason and a message.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=2,displayName="Conditions",xDescriptors="urn:alm:descriptor:io.kubernetes.conditions"
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// workflows is the number of AgentWorkflows that use the agent.
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=1,displayName="Workflows that use it",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	Workflows int32 `json:"workflows"`
}
