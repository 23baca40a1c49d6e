package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dcnlab/spot-training-operator/api/podtemplate"
)

// AIJob is one AI workload: inference, training, simulation or evaluation. It waits in a queue until all its pods can
// run, is run, and is tried again with growing delay when it fails.
//
// The name is at most 50 characters and a DNS label that starts with a letter, because it prefixes the names of pods.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=aijobs,singular=aijob,shortName=aij,categories=ml
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.jobType`,description="Kind of workload"
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`,description="Priority in the queue, 0 to 100"
// +kubebuilder:printcolumn:name="Queue",type=string,JSONPath=`.spec.queueName`,description="Queue that admits the job"
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`,description="Phase of the job"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`,description="Why the job is in its phase"
// +kubebuilder:printcolumn:name="Retries",type=integer,JSONPath=`.status.retryCount`,description="Times that the job was tried again"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether the operator acts on the job"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Position",type=integer,priority=1,JSONPath=`.status.queuePosition`,description="Place in the queue, from 1"
// +kubebuilder:printcolumn:name="Cluster",type=string,priority=1,JSONPath=`.status.clusterName`,description="ComputeCluster in which the job runs"
// +kubebuilder:printcolumn:name="URL",type=string,priority=1,JSONPath=`.status.url`,description="Where the job serves within the cluster"
// +kubebuilder:printcolumn:name="Image",type=string,priority=1,JSONPath=`.spec.image`,description="Image that is run"
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.message`,description="Why the job is in its phase, in a sentence"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 50 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",fieldPath=".spec",message="metadata.name: must be at most 50 characters of a-z, 0-9 and '-', starting with a letter and ending with a letter or digit, because it prefixes the names of pods: choose a shorter or simpler name"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.phase) || oldSelf.status.phase in ['Pending', 'Queued'] || (has(self.spec.queueName) == has(oldSelf.spec.queueName) && (!has(self.spec.queueName) || self.spec.queueName == oldSelf.spec.queueName))",fieldPath=".spec.queueName",message="spec.queueName: can only be changed while the job waits: create another AIJob in the other queue"
// +operator-sdk:csv:customresourcedefinitions:displayName="AI Job",order=4,resources={{Pod,v1}}
type AIJob struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec says what to run. What the pods are made from can be changed while the job waits or is in DeadLetter; priority, preemptible,
	// retryPolicy, timeoutSeconds, ttlSecondsAfterFinished and cancel at any time.
	// +required
	Spec AIJobSpec `json:"spec,omitzero"`

	// status is what the operator observed. It is written by the operator only. Until then the phase is Pending.
	// +kubebuilder:default={phase: Pending}
	Status AIJobStatus `json:"status,omitzero"`
}

// AIJobList is a list of AIJobs.
//
// +kubebuilder:object:root=true
type AIJobList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard list metadata.
	metav1.ListMeta `json:"metadata,omitzero"`

	// items are the AIJobs.
	// +required
	Items []AIJob `json:"items"`
}

// StatusConditions gives access to the conditions in the status.
func (j *AIJob) StatusConditions() *[]metav1.Condition { return &j.Status.Conditions }

// AIJobSpec says what to run, with which resources, and what happens when it fails.
//
// +kubebuilder:validation:XValidation:rule="has(self.command) == has(oldSelf.command)",fieldPath=".command",message="spec.command: can be changed only while the job waits or is in DeadLetter: create another AIJob"
// +kubebuilder:validation:XValidation:rule="has(self.args) == has(oldSelf.args)",fieldPath=".args",message="spec.args: can be changed only while the job waits or is in DeadLetter: create another AIJob"
// +kubebuilder:validation:XValidation:rule="has(self.env) == has(oldSelf.env)",fieldPath=".env",message="spec.env: can be changed only while the job waits or is in DeadLetter: create another AIJob"
// +kubebuilder:validation:XValidation:rule="has(self.config) == has(oldSelf.config) && (!has(self.config) || self.config == oldSelf.config)",fieldPath=".config",message="spec.config: can be changed only while the job waits or is in DeadLetter: create another AIJob"
// +kubebuilder:validation:XValidation:rule="has(self.resources) == has(oldSelf.resources)",fieldPath=".resources",message="spec.resources: can be changed only while the job waits or is in DeadLetter: create another AIJob"
// +kubebuilder:validation:XValidation:rule="has(self.nodeSelector) == has(oldSelf.nodeSelector)",fieldPath=".nodeSelector",message="spec.nodeSelector: can be changed only while the job waits or is in DeadLetter: create another AIJob"
// +kubebuilder:validation:XValidation:rule="has(self.tolerations) == has(oldSelf.tolerations)",fieldPath=".tolerations",message="spec.tolerations: can be changed only while the job waits or is in DeadLetter: create another AIJob"
// +kubebuilder:validation:XValidation:rule="has(self.clusterName) == has(oldSelf.clusterName)",fieldPath=".clusterName",message="spec.clusterName: can be changed only while the job waits or is in DeadLetter: create another AIJob"
// +kubebuilder:validation:XValidation:rule="has(self.service) == has(oldSelf.service) && (!has(self.service) || self.service == oldSelf.service)",fieldPath=".service",message="spec.service: is immutable: create another AIJob"
// +kubebuilder:validation:XValidation:rule="has(self.serviceAccountName) == has(oldSelf.serviceAccountName)",fieldPath=".serviceAccountName",message="spec.serviceAccountName: can be changed only while the job waits or is in DeadLetter: create another AIJob"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.cancel) || !oldSelf.cancel || (has(self.cancel) && self.cancel)",fieldPath=".cancel",message="spec.cancel: cannot be taken back: create another AIJob"
// +kubebuilder:validation:XValidation:rule="has(self.volumes) == has(oldSelf.volumes) && (!has(self.volumes) || self.volumes == oldSelf.volumes)",fieldPath=".volumes",message="spec.volumes: can be changed only while the job waits or is in DeadLetter: create another AIJob"
// +kubebuilder:validation:XValidation:rule="has(self.volumeMounts) == has(oldSelf.volumeMounts) && (!has(self.volumeMounts) || self.volumeMounts == oldSelf.volumeMounts)",fieldPath=".volumeMounts",message="spec.volumeMounts: can be changed only while the job waits or is in DeadLetter: create another AIJob"
// +kubebuilder:validation:XValidation:rule="has(self.envFrom) == has(oldSelf.envFrom) && (!has(self.envFrom) || self.envFrom == oldSelf.envFrom)",fieldPath=".envFrom",message="spec.envFrom: can be changed only while the job waits or is in DeadLetter: create another AIJob"
// +kubebuilder:validation:XValidation:rule="has(self.workingDir) == has(oldSelf.workingDir) && (!has(self.workingDir) || self.workingDir == oldSelf.workingDir)",fieldPath=".workingDir",message="spec.workingDir: can be changed only while the job waits or is in DeadLetter: create another AIJob"
// +kubebuilder:validation:XValidation:rule="has(self.podTemplate) == has(oldSelf.podTemplate) && (!has(self.podTemplate) || self.podTemplate == oldSelf.podTemplate)",fieldPath=".podTemplate",message="spec.podTemplate: can be changed only while the job waits or is in DeadLetter: create another AIJob"
// +kubebuilder:validation:XValidation:rule="has(self.imagePullPolicy) == has(oldSelf.imagePullPolicy) && (!has(self.imagePullPolicy) || self.imagePullPolicy == oldSelf.imagePullPolicy)",fieldPath=".imagePullPolicy",message="spec.imagePullPolicy: can be changed only while the job waits or is in DeadLetter: create another AIJob"
// +kubebuilder:validation:XValidation:rule="has(self.imagePullSecrets) == has(oldSelf.imagePullSecrets) && (!has(self.imagePullSecrets) || self.imagePullSecrets == oldSelf.imagePullSecrets)",fieldPath=".imagePullSecrets",message="spec.imagePullSecrets: can be changed only while the job waits or is in DeadLetter: create another AIJob"
// +kubebuilder:validation:XValidation:rule="has(self.securityContext) == has(oldSelf.securityContext) && (!has(self.securityContext) || self.securityContext == oldSelf.securityContext)",fieldPath=".securityContext",message="spec.securityContext: can be changed only while the job waits or is in DeadLetter: create another AIJob"
// +kubebuilder:validation:XValidation:rule="has(self.affinity) == has(oldSelf.affinity) && (!has(self.affinity) || self.affinity == oldSelf.affinity)",fieldPath=".affinity",message="spec.affinity: can be changed only while the job waits or is in DeadLetter: create another AIJob"
// +kubebuilder:validation:XValidation:rule="has(self.priorityClassName) == has(oldSelf.priorityClassName) && (!has(self.priorityClassName) || self.priorityClassName == oldSelf.priorityClassName)",fieldPath=".priorityClassName",message="spec.priorityClassName: can be changed only while the job waits or is in DeadLetter: create another AIJob"
// +kubebuilder:validation:XValidation:rule="has(self.source) == has(oldSelf.source) && (!has(self.source) || self.source == oldSelf.source)",fieldPath=".source",message="spec.source: can be changed only while the job waits or is in DeadLetter: create another AIJob"
// +kubebuilder:validation:XValidation:rule="has(self.serviceAccountName) || !has(self.volumes) || !self.volumes.exists(v, has(v.projected) && has(v.projected.sources) && v.projected.sources.exists(s, has(s.serviceAccountToken)))",fieldPath=".volumes",message="spec.volumes: a serviceAccountToken needs a ServiceAccount that you choose: set spec.serviceAccountName"
// +kubebuilder:validation:XValidation:rule="!has(self.podTemplate) || !has(self.podTemplate.resourceClaims) || self.podTemplate.resourceClaims.size() == 0",fieldPath=".podTemplate.resourceClaims",message="spec.podTemplate.resourceClaims: queues do not know which nodes have the devices: remove them"
// +kubebuilder:validation:XValidation:rule="!has(self.podTemplate) || !has(self.podTemplate.topologySpreadConstraints) || self.podTemplate.topologySpreadConstraints.all(c, c.whenUnsatisfiable != 'DoNotSchedule')",fieldPath=".podTemplate.topologySpreadConstraints",message="spec.podTemplate.topologySpreadConstraints: queues cannot keep DoNotSchedule: use ScheduleAnyway"
// +kubebuilder:validation:XValidation:rule="!has(self.queueName) || !has(self.priorityClassName)",fieldPath=".priorityClassName",message="spec.priorityClassName: that of the queue counts: remove it, or spec.queueName"
type AIJobSpec struct {
	// jobType is the kind of workload: inference, training, simulation or evaluation. Workers see it as JOB_TYPE.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.jobType: is immutable: create another AIJob"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=1,displayName="Type of job",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:select:inference","urn:alm:descriptor:com.tectonic.ui:select:training","urn:alm:descriptor:com.tectonic.ui:select:simulation","urn:alm:descriptor:com.tectonic.ui:select:evaluation"}
	JobType JobType `json:"jobType,omitempty"`

	// priority in the queue, 0 to 100; the highest is admitted first. Default 50.
	// +kubebuilder:default=50
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=7,displayName="Priority",xDescriptors="urn:alm:descriptor:com.tectonic.ui:number"
	Priority *int32 `json:"priority,omitempty"`

	// queueName is the AIJobQueue that admits the job. Default: none, and the job is admitted as soon as it fits.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=8,displayName="Queue",xDescriptors="urn:alm:descriptor:io.kubernetes:aiplatform.example.com:v1alpha1:AIJobQueue"
	QueueName string `json:"queueName,omitempty"`

	// clusterName is the ComputeCluster in which the job must run. Default: any whose nodes fit.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.clusterName: can be changed only while the job waits or is in DeadLetter: create another AIJob"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=9,displayName="Compute cluster",xDescriptors={"urn:alm:descriptor:io.kubernetes:aiplatform.example.com:v1alpha1:ComputeCluster","urn:alm:descriptor:com.tectonic.ui:advanced"}
	ClusterName string `json:"clusterName,omitempty"`

	// preemptible says whether a job of higher priority may take this one's place, where its queue allows that. It is
	// then queued again, which does not count as a retry. Default true.
	// +kubebuilder:default=true
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=17,displayName="Preemptible",xDescriptors="urn:alm:descriptor:com.tectonic.ui:booleanSwitch"
	Preemptible *bool `json:"preemptible,omitempty"`

	// image is the container image to run.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^\S+$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.image: can be changed only while the job waits or is in DeadLetter: create another AIJob"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=2,displayName="Image",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	Image string `json:"image,omitempty"`

	// command is the entry point of the container. Default: that of the image.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=8192
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.command: can be changed only while the job waits or is in DeadLetter: create another AIJob"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=3,displayName="Command",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	Command []string `json:"command,omitempty"`

	// args are the arguments of the entry point.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=8192
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.args: can be changed only while the job waits or is in DeadLetter: create another AIJob"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=4,displayName="Arguments",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	Args []string `json:"args,omitempty"`

	// env are environment variables of the container, at most 256.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:XValidation:rule="self.all(e, e.name != '')",message="spec.env: a variable has an empty name: give it one or remove it"
	// +kubebuilder:validation:XValidation:rule="self.all(e, !has(e.value) || e.value == '' || !has(e.valueFrom))",message="spec.env: a variable has both value and valueFrom: keep one of the two"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.env: can be changed only while the job waits or is in DeadLetter: create another AIJob"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=5,displayName="Environment variables",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	Env []corev1.EnvVar `json:"env,omitempty"`

	// config is any object; the container sees it as JSON in CONFIG.
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=6,displayName="Configuration",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	Config *runtime.RawExtension `json:"config,omitempty"`

	// resources are the requests and limits of each pod. Default: what the installation says, told in
	// status.defaultResources; without that none, so that the pod runs where there is room left.
	// +kubebuilder:validation:XValidation:rule="!has(self.limits) || self.limits.size() <= 64",fieldPath=".limits",message="spec.resources.limits: names more than 64 resources: leave out those that the pod does not need"
	// +kubebuilder:validation:XValidation:rule="!has(self.requests) || self.requests.size() <= 64",fieldPath=".requests",message="spec.resources.requests: names more than 64 resources: leave out those that the pod does not need"
	// +kubebuilder:validation:XValidation:rule="!has(self.limits) || ['cpu', 'memory', 'ephemeral-storage', 'nvidia.com/gpu'].all(k, !(k in self.limits) || (isQuantity(string(self.limits[k])) && quantity(string(self.limits[k])).compareTo(quantity('0')) >= 0))",fieldPath=".limits",message="spec.resources.limits: has an amount below 0 or that is no number: write for example cpu: 500m, memory: 32Gi"
	// +kubebuilder:validation:XValidation:rule="!has(self.requests) || ['cpu', 'memory', 'ephemeral-storage', 'nvidia.com/gpu'].all(k, !(k in self.requests) || (isQuantity(string(self.requests[k])) && quantity(string(self.requests[k])).compareTo(quantity('0')) >= 0))",fieldPath=".requests",message="spec.resources.requests: has an amount below 0 or that is no number: write for example cpu: 500m, memory: 32Gi"
	// +kubebuilder:validation:XValidation:rule="!has(self.requests) || !has(self.limits) || ['cpu', 'memory', 'ephemeral-storage'].all(k, !(k in self.requests) || !(k in self.limits) || !isQuantity(string(self.requests[k])) || !isQuantity(string(self.limits[k])) || quantity(string(self.requests[k])).compareTo(quantity(string(self.limits[k]))) <= 0)",fieldPath=".requests",message="spec.resources.requests: asks for more cpu, memory or ephemeral-storage than the limit: lower the request or raise the limit"
	// +kubebuilder:validation:XValidation:rule="!has(self.requests) || !has(self.limits) || !('nvidia.com/gpu' in self.requests) || !('nvidia.com/gpu' in self.limits) || string(self.requests['nvidia.com/gpu']) == string(self.limits['nvidia.com/gpu'])",fieldPath=".requests",message="spec.resources.requests: asks for another number of nvidia.com/gpu than the limit, but GPUs cannot be overcommitted: set both to the same number or remove one"
	// +kubebuilder:validation:XValidation:rule="has(self.limits) == has(oldSelf.limits) && (!has(self.limits) || (self.limits.size() == oldSelf.limits.size() && ['cpu', 'memory', 'ephemeral-storage', 'nvidia.com/gpu'].all(k, (k in self.limits) == (k in oldSelf.limits) && (!(k in self.limits) || quantity(string(self.limits[k])).compareTo(quantity(string(oldSelf.limits[k]))) == 0))))",message="spec.resources: can be changed only while the job waits or is in DeadLetter: create another AIJob"
	// +kubebuilder:validation:XValidation:rule="has(self.requests) == has(oldSelf.requests) && (!has(self.requests) || (self.requests.size() == oldSelf.requests.size() && ['cpu', 'memory', 'ephemeral-storage', 'nvidia.com/gpu'].all(k, (k in self.requests) == (k in oldSelf.requests) && (!(k in self.requests) || quantity(string(self.requests[k])).compareTo(quantity(string(oldSelf.requests[k]))) == 0))))",message="spec.resources: can be changed only while the job waits or is in DeadLetter: create another AIJob"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=10,displayName="Resources of a pod",xDescriptors="urn:alm:descriptor:com.tectonic.ui:resourceRequirements"
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// gang says how many pods the job has, and that they start together or not at all. Default: one pod.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.gang: is immutable: create another AIJob"
	// +kubebuilder:default={}
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=11,displayName="Gang"
	Gang Gang `json:"gang,omitzero"`

	// retryPolicy says how often and after which delay the job is tried again when it has failed.
	// +kubebuilder:default={}
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=14,displayName="Retry policy"
	RetryPolicy RetryPolicy `json:"retryPolicy,omitzero"`

	// timeoutSeconds is the time that one try may take before it counts as failed, 1 to 3153600000 (100 years).
	// Default: no limit.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3153600000
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=18,displayName="Time limit of a try in seconds",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:number","urn:alm:descriptor:com.tectonic.ui:advanced"}
	TimeoutSeconds *int64 `json:"timeoutSeconds,omitempty"`

	// ttlSecondsAfterFinished deletes the AIJob this many seconds after it has Succeeded, Failed or been Cancelled. Jobs
	// in DeadLetter are kept. Default: it is never deleted.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=19,displayName="Delete so many seconds after the end",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:number","urn:alm:descriptor:com.tectonic.ui:advanced"}
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`

	// cancel ends the job as Cancelled and stops its pods. It cannot be taken back. Default false.
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=20,displayName="Cancel",xDescriptors="urn:alm:descriptor:com.tectonic.ui:booleanSwitch"
	Cancel *bool `json:"cancel,omitempty"`

	// nodeSelector are labels that a node must have, beside those of the ComputeCluster. At most 64.
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.nodeSelector: can be changed only while the job waits or is in DeadLetter: create another AIJob"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=21,displayName="Node labels",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	NodeSelector map[string]LabelValue `json:"nodeSelector,omitempty"`

	// tolerations of node taints, at most 64.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.operator) || t.operator in ['', 'Exists', 'Equal', 'Lt', 'Gt'])",message="spec.tolerations: has an unknown operator: use Exists, or Equal with a value"
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.effect) || t.effect in ['', 'NoSchedule', 'PreferNoSchedule', 'NoExecute'])",message="spec.tolerations: has an unknown effect: use NoSchedule, PreferNoSchedule or NoExecute, or leave it out for all of them"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.tolerations: can be changed only while the job waits or is in DeadLetter: create another AIJob"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=22,displayName="Tolerations",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// serviceAccountName is the ServiceAccount of the pods. Default: the namespace's default one, whose token is not
	// mounted.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.serviceAccountName: can be changed only while the job waits or is in DeadLetter: create another AIJob"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=23,displayName="Service account",xDescriptors={"urn:alm:descriptor:io.kubernetes:ServiceAccount","urn:alm:descriptor:com.tectonic.ui:advanced"}
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// service makes the pods reachable under one name, as for a model that is served by HTTP: the operator creates a Service with the
	// name of the job, which sends connections to those pods that are ready. Default: none.
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=24,displayName="Service",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	Service *AIJobService `json:"service,omitempty"`

	PodOptions `json:",inline"`

	// source is the code of the program: a ConfigMap, a commit of a git repository, an OCI artifact or an archive, unpacked before the
	// program starts and its working directory unless workingDir names another. Default: none, and the image has the code.
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Source",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	Source *podtemplate.Source `json:"source,omitempty"`

	podtemplate.Settings `json:",inline"`
}

// AIJobService is how the pods of an AIJob are reached.
type AIJobService struct {
	// port of the Service, at which the container listens too, 1 to 65535.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`

	// readinessPath is the path at which a pod that can serve answers an HTTP GET with a status from 200 to 399. Default: none, and a
	// pod is ready once it accepts connections.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^/\S*$`
	ReadinessPath string `json:"readinessPath,omitempty"`
}

// MaxTimeoutSeconds is the longest time limit, 100 years of 365 days: what is stored with a longer one is held to this.
const MaxTimeoutSeconds int64 = 100 * 365 * 24 * 3600

// JobType is a kind of AI workload.
// +kubebuilder:validation:Enum=inference;training;simulation;evaluation
type JobType string

// The job types.
const (
	JobInference  JobType = "inference"
	JobTraining   JobType = "training"
	JobSimulation JobType = "simulation"
	JobEvaluation JobType = "evaluation"
)

// LabelValue is the value of a label.
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$`
type LabelValue string

// Gang says how many pods start together or not at all.
//
// +kubebuilder:validation:XValidation:rule="!has(self.enabled) || !self.enabled || (has(self.minMembers) && self.minMembers >= 2)",fieldPath=".minMembers",message="spec.gang.minMembers: is 1, but a gang has at least 2 members: set it to the number of pods, or set enabled to false"
// +kubebuilder:validation:XValidation:rule="(has(self.enabled) && self.enabled) || !has(self.minMembers) || self.minMembers == 1",fieldPath=".enabled",messageExpression="'spec.gang.enabled: is false, but minMembers is %d: set enabled to true to start that many pods together, or remove minMembers'.format([self.minMembers])"
// +kubebuilder:validation:XValidation:rule="(has(self.enabled) && self.enabled) || !has(self.topology)",fieldPath=".topology",message="spec.gang.topology: has no use without a gang: set enabled to true or remove topology"
type Gang struct {
	// enabled starts minMembers pods together or not at all. Default false.
	// +kubebuilder:default=false
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=12,displayName="Start all pods together or none",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:booleanSwitch","urn:alm:descriptor:com.tectonic.ui:fieldGroup:gang"}
	Enabled *bool `json:"enabled,omitempty"`

	// minMembers is the number of pods of the gang, 2 to 1000. Default 1, which is for jobs without a gang.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=13,displayName="Pods",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:number","urn:alm:descriptor:com.tectonic.ui:fieldGroup:gang"}
	MinMembers int32 `json:"minMembers,omitempty"`

	// topology is the label that all the gang's nodes must have the same value of, for example
	// topology.kubernetes.io/zone. Default: any nodes.
	// +kubebuilder:validation:MaxLength=316
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	Topology string `json:"topology,omitempty"`
}

// RetryPolicy says how often and after which delay a failed job is tried again.
//
// +kubebuilder:validation:XValidation:rule="!has(self.initialBackoff) || !has(self.maxBackoff) || duration(self.initialBackoff) <= duration(self.maxBackoff)",fieldPath=".initialBackoff",messageExpression="'spec.retryPolicy.initialBackoff: ' + self.initialBackoff + ' is more than maxBackoff ' + self.maxBackoff + ': lower it or raise maxBackoff'"
type RetryPolicy struct {
	// maxRetries is the number of tries after the first, 0 to 100; then the job goes to DeadLetter, from where the
	// annotation aiplatform.example.com/requeue brings it back. Default 3.
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=15,displayName="Retries",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:number","urn:alm:descriptor:com.tectonic.ui:fieldGroup:retryPolicy"}
	MaxRetries *int32 `json:"maxRetries,omitempty"`

	// backoffMultiplier is the factor by which the delay grows with every retry, 1 to 10. Default 2.
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=16,displayName="Growth of the delay",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:text","urn:alm:descriptor:com.tectonic.ui:fieldGroup:retryPolicy"}
	BackoffMultiplier float64 `json:"backoffMultiplier,omitempty"`

	// initialBackoff is the delay before the first retry, up to maxBackoff. Default 10s.
	// +kubebuilder:default="10s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	InitialBackoff *metav1.Duration `json:"initialBackoff,omitempty"`

	// maxBackoff is the longest delay before a retry, up to 24h. Default 10m.
	// +kubebuilder:default="10m0s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('24h')",message="spec.retryPolicy.maxBackoff: is more than 24h: choose less"
	MaxBackoff *metav1.Duration `json:"maxBackoff,omitempty"`
}

// AIJobStatus is what the operator observed.
type AIJobStatus struct {
	// observedGeneration is the metadata.generation that this status speaks of.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// phase of the job: Pending (not yet looked at), Queued, Scheduled (resources are reserved, pods start), Running,
	// Retrying (waits before the next try), Succeeded, Failed (cannot succeed, is not tried again), DeadLetter (retries
	// exhausted) or Cancelled.
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=1,displayName="Phase",xDescriptors="urn:alm:descriptor:io.kubernetes.phase"
	Phase AIJobPhase `json:"phase,omitempty"`

	// reason says in one word why the job is in its phase.
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=2,displayName="Reason",xDescriptors="urn:alm:descriptor:io.kubernetes.phase:reason"
	Reason string `json:"reason,omitempty"`

	// message says in a sentence why the job is in its phase.
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=3,displayName="Message",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	Message string `json:"message,omitempty"`

	// conditions are Ready, Queued, Scheduled, Complete and Failed, each with a reason and a message. ChildrenApplied is False
	// while an object of the job cannot be written.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=8,displayName="Conditions",xDescriptors="urn:alm:descriptor:io.kubernetes.conditions"
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// queuePosition is the job's place in its queue, from 1, while it is Queued.
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=4,displayName="Place in the queue",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	QueuePosition int32 `json:"queuePosition,omitempty"`

	// clusterName is the ComputeCluster in which the job runs.
	ClusterName string `json:"clusterName,omitempty"`

	// assignments are the nodes on which the job has its place since it was last Scheduled, at most 1000.
	// +listType=map
	// +listMapKey=nodeName
	// +kubebuilder:validation:MaxItems=1000
	Assignments []NodeAssignment `json:"assignments,omitempty"`

	// source is the code of spec.source that the job was started with first. Later attempts use the same, or the job fails with SourceChanged.
	Source *podtemplate.SourceStatus `json:"source,omitempty"`

	// volumeTopology are selectors that a node must match all because the job's volumes can be used only there: the node affinity of
	// PersistentVolumes, and the allowedTopologies of StorageClasses of claims that are not bound yet. It is looked up when the job is
	// to be admitted.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	VolumeTopology []corev1.NodeSelector `json:"volumeTopology,omitempty"`

	// members counts the job's pods.
	Members *MembersStatus `json:"members,omitempty"`

	// url is where spec.service serves within the cluster, while the job runs.
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=9,displayName="URL",xDescriptors="urn:alm:descriptor:org.w3:link"
	URL string `json:"url,omitempty"`

	// uid is the metadata.uid of the job that this status speaks of. Where it is not the job's own, the status came with the job from
	// a backup: a job that had not ended is then queued again.
	UID types.UID `json:"uid,omitempty"`

	// retryCount is the number of times that the job was tried again after a failure.
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=5,displayName="Retries",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	RetryCount int32 `json:"retryCount,omitempty"`

	// preemptionCount is the number of times that the job lost its place. These are no retries.
	PreemptionCount int32 `json:"preemptionCount,omitempty"`

	// failedStarts is how often in a row the job lost its place because its pods could not be started. The pause before it is queued
	// again is 30 seconds, doubled each time, and 30 minutes at most. It is 0 once the job runs.
	FailedStarts int32 `json:"failedStarts,omitempty"`

	// unsettledFailures are failures that may still turn out to be losses of a node, which are no retries. Each is settled within a
	// minute. At most 32.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	UnsettledFailures []UnsettledFailure `json:"unsettledFailures,omitempty"`

	// nextRetryTime is when the job is queued again, while it is Retrying.
	NextRetryTime *metav1.Time `json:"nextRetryTime,omitempty"`

	// queuedTime is when the job was last put into its queue.
	QueuedTime *metav1.Time `json:"queuedTime,omitempty"`

	// scheduledTime is when resources were last reserved.
	ScheduledTime *metav1.Time `json:"scheduledTime,omitempty"`

	// startTime is when all pods of the last try ran.
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// completionTime is when the job came to its end.
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`

	// defaultResources are the requests and limits that the installation gives each pod (--default-worker-requests,
	// --default-worker-limits), because spec.resources does not name them. They are set again when the job is queued or admitted.
	DefaultResources *corev1.ResourceRequirements `json:"defaultResources,omitempty"`

	// exitCode of the container that ended the last try.
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=6,displayName="Exit code",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	ExitCode *int32 `json:"exitCode,omitempty"`

	// outputs are the values that the job reported at its end, by name. At most 64.
	// +kubebuilder:validation:MaxProperties=64
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=7,displayName="Outputs"
	Outputs map[string]string `json:"outputs,omitempty"`
}

// UnsettledFailure is the end of pods that lost contact to one that has reported no end. Within a minute it turns out whether the node
// of such a pod was lost; if none was, it is a failure.
type UnsettledFailure struct {
	// time at which the operator saw it.
	// +required
	Time metav1.Time `json:"time,omitzero"`

	// nodes of the pods that had reported no end, at most 100, by name, each with the boot ID that it had then.
	// +kubebuilder:validation:MaxProperties=100
	Nodes map[string]string `json:"nodes,omitempty"`

	// retried says that the job is tried again after it: it is part of retryCount, until a node turns out to be lost. After one that
	// uses up the retries, the job is not tried again before it is settled.
	Retried bool `json:"retried,omitempty"`
}

// NodeAssignment is the place of some of a job's pods on a node.
type NodeAssignment struct {
	// nodeName is the name of the node.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName,omitempty"`

	// members is the number of the job's pods on it, at least 1.
	// +required
	// +kubebuilder:validation:Minimum=1
	Members int32 `json:"members,omitempty"`
}

// AIJobPhase is the phase of an AIJob.
// +kubebuilder:validation:Enum=Pending;Queued;Scheduled;Running;Retrying;Succeeded;Failed;DeadLetter;Cancelled
type AIJobPhase string

// The phases of an AIJob.
const (
	AIJobPending    AIJobPhase = "Pending"
	AIJobQueued     AIJobPhase = "Queued"
	AIJobScheduled  AIJobPhase = "Scheduled"
	AIJobRunning    AIJobPhase = "Running"
	AIJobRetrying   AIJobPhase = "Retrying"
	AIJobSucceeded  AIJobPhase = "Succeeded"
	AIJobFailed     AIJobPhase = "Failed"
	AIJobDeadLetter AIJobPhase = "DeadLetter"
	AIJobCancelled  AIJobPhase = "Cancelled"
)

// Ended says whether a job does not leave the phase by itself. It leaves DeadLetter when a user requeues it.
func (p AIJobPhase) Ended() bool {
	return p == AIJobSucceeded || p == AIJobFailed || p == AIJobDeadLetter || p == AIJobCancelled
}

// MembersStatus counts the pods of a job.
type MembersStatus struct {
	// total is the number of pods that should exist.
	Total int32 `json:"total"`

	// active is the number of pods that run.
	Active int32 `json:"active"`

	// succeeded is the number of pods that ended with exit code 0.
	Succeeded int32 `json:"succeeded"`

	// cleared is how many of the succeeded pods do not exist any more.
	// +kubebuilder:validation:Minimum=0
	Cleared int32 `json:"cleared,omitempty"`

	// failed is the number of pods of the present try that failed.
	Failed int32 `json:"failed"`
}
