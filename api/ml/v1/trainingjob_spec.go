package v1

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/dcnlab/spot-training-operator/api/podtemplate"
)

// TrainingJobSpec says what to train, with which resources, and what to do when it fails or ends.
//
// +kubebuilder:validation:XValidation:rule="!has(self.elastic) || (self.numWorkers >= self.elastic.minWorkers && self.numWorkers <= self.elastic.maxWorkers)",fieldPath=".numWorkers",messageExpression="'spec.numWorkers: %d lies outside spec.elastic (%d to %d): choose a number within these bounds or widen them'.format([self.numWorkers, self.elastic.minWorkers, self.elastic.maxWorkers])"
// +kubebuilder:validation:XValidation:rule="self.numWorkers == oldSelf.numWorkers || has(self.elastic)",fieldPath=".numWorkers",message="spec.numWorkers: can be changed only with spec.elastic, or while the job is suspended or queued: set spec.suspend, wait for Suspended"
// +kubebuilder:validation:XValidation:rule="!has(self.networking) || !has(self.networking.backend) || self.networking.backend != 'nccl' || self.gpusPerWorker > 0",fieldPath=".networking.backend",message="spec.networking.backend: nccl needs GPUs, but spec.gpusPerWorker is 0: use gloo or mpi, or ask for GPUs"
// +kubebuilder:validation:XValidation:rule="!has(self.resources) || !has(self.resources.limits) || !('nvidia.com/gpu' in self.resources.limits) || (isQuantity(string(self.resources.limits['nvidia.com/gpu'])) && quantity(string(self.resources.limits['nvidia.com/gpu'])).isInteger() && quantity(string(self.resources.limits['nvidia.com/gpu'])).asInteger() in [self.gpusPerWorker, self.numWorkers * self.gpusPerWorker])",fieldPath=".resources.limits",messageExpression="'spec.resources.limits[nvidia.com/gpu]: %s is neither spec.gpusPerWorker (%d, per worker) nor spec.numWorkers x spec.gpusPerWorker (%d, the whole job): remove it, or set gpusPerWorker to the number that each worker needs'.format([self.resources.limits['nvidia.com/gpu'], self.gpusPerWorker, self.numWorkers * self.gpusPerWorker])"
// +kubebuilder:validation:XValidation:rule="!has(self.resources) || !has(self.resources.requests) || !('nvidia.com/gpu' in self.resources.requests) || (isQuantity(string(self.resources.requests['nvidia.com/gpu'])) && quantity(string(self.resources.requests['nvidia.com/gpu'])).isInteger() && quantity(string(self.resources.requests['nvidia.com/gpu'])).asInteger() in [self.gpusPerWorker, self.numWorkers * self.gpusPerWorker])",fieldPath=".resources.requests",messageExpression="'spec.resources.requests[nvidia.com/gpu]: %s is neither spec.gpusPerWorker (%d, per worker) nor spec.numWorkers x spec.gpusPerWorker (%d, the whole job): remove it, or set gpusPerWorker to the number that each worker needs'.format([self.resources.requests['nvidia.com/gpu'], self.gpusPerWorker, self.numWorkers * self.gpusPerWorker])"
// +kubebuilder:validation:XValidation:rule="!has(self.monitoring.metricsPort) || !has(self.networking.masterPort) || self.monitoring.metricsPort != self.networking.masterPort",fieldPath=".monitoring.metricsPort",messageExpression="'spec.monitoring.metricsPort: %d is spec.networking.masterPort as well: choose another port for one of them'.format([self.monitoring.metricsPort])"
// +kubebuilder:validation:XValidation:rule="!has(self.monitoring.tensorboardEnabled) || !self.monitoring.tensorboardEnabled || !has(self.networking.masterPort) || self.networking.masterPort != 6006",fieldPath=".networking.masterPort",message="spec.networking.masterPort: 6006 is the port of TensorBoard beside replica 0: choose another, or set spec.monitoring.tensorboardEnabled to false"
// +kubebuilder:validation:XValidation:rule="self.numWorkers == 1 || !has(self.checkpoint) || !has(self.checkpoint.storage.accessModes) || !('ReadWriteOncePod' in self.checkpoint.storage.accessModes)",fieldPath=".checkpoint.storage.accessModes",message="spec.checkpoint.storage.accessModes: ReadWriteOncePod allows one worker only: use ReadWriteMany, or ReadWriteOnce with all workers on one node, or set numWorkers to 1"
// +kubebuilder:validation:XValidation:rule="self.model == oldSelf.model",fieldPath=".model",message="spec.model: can be changed only before the first start, while the job is suspended or queued: delete the job and create it again, its checkpoints are kept"
// +kubebuilder:validation:XValidation:rule="self.dataset == oldSelf.dataset",fieldPath=".dataset",message="spec.dataset: can be changed only before the first start, while the job is suspended or queued: delete the job and create it again, its checkpoints are kept"
// +kubebuilder:validation:XValidation:rule="self.gpusPerWorker == oldSelf.gpusPerWorker",fieldPath=".gpusPerWorker",message="spec.gpusPerWorker: can be changed only while the job is suspended or queued: set spec.suspend, wait for Suspended"
// +kubebuilder:validation:XValidation:rule="self.framework == oldSelf.framework",fieldPath=".framework",message="spec.framework: can be changed only before the first start, while the job is suspended or queued: delete the job and create it again, its checkpoints are kept"
// +kubebuilder:validation:XValidation:rule="has(self.image) == has(oldSelf.image) && (!has(self.image) || self.image == oldSelf.image)",fieldPath=".image",message="spec.image: can be changed only while the job is suspended or queued: set spec.suspend, wait for Suspended"
// +kubebuilder:validation:XValidation:rule="has(self.imagePullPolicy) == has(oldSelf.imagePullPolicy) && (!has(self.imagePullPolicy) || self.imagePullPolicy == oldSelf.imagePullPolicy)",fieldPath=".imagePullPolicy",message="spec.imagePullPolicy: can be changed only while the job is suspended or queued: set spec.suspend, wait for Suspended"
// +kubebuilder:validation:XValidation:rule="has(self.imagePullSecrets) == has(oldSelf.imagePullSecrets) && (!has(self.imagePullSecrets) || self.imagePullSecrets == oldSelf.imagePullSecrets)",fieldPath=".imagePullSecrets",message="spec.imagePullSecrets: can be changed only while the job is suspended or queued: set spec.suspend, wait for Suspended"
// +kubebuilder:validation:XValidation:rule="has(self.command) == has(oldSelf.command) && (!has(self.command) || self.command == oldSelf.command)",fieldPath=".command",message="spec.command: can be changed only while the job is suspended or queued: set spec.suspend, wait for Suspended"
// +kubebuilder:validation:XValidation:rule="has(self.args) == has(oldSelf.args) && (!has(self.args) || self.args == oldSelf.args)",fieldPath=".args",message="spec.args: can be changed only while the job is suspended or queued: set spec.suspend, wait for Suspended"
// +kubebuilder:validation:XValidation:rule="has(self.env) == has(oldSelf.env) && (!has(self.env) || self.env == oldSelf.env)",fieldPath=".env",message="spec.env: can be changed only while the job is suspended or queued: set spec.suspend, wait for Suspended"
// +kubebuilder:validation:XValidation:rule="has(self.resources) == has(oldSelf.resources)",fieldPath=".resources",message="spec.resources: can be changed only while the job is suspended or queued: set spec.suspend, wait for Suspended"
// +kubebuilder:validation:XValidation:rule="!has(self.resources) || !has(oldSelf.resources) || (has(self.resources.limits) == has(oldSelf.resources.limits) && (!has(self.resources.limits) || (self.resources.limits.size() == oldSelf.resources.limits.size() && ['cpu', 'memory', 'ephemeral-storage', 'nvidia.com/gpu'].all(k, (k in self.resources.limits) == (k in oldSelf.resources.limits) && (!(k in self.resources.limits) || quantity(string(self.resources.limits[k])).compareTo(quantity(string(oldSelf.resources.limits[k]))) == 0)))))",fieldPath=".resources",message="spec.resources: can be changed only while the job is suspended or queued: set spec.suspend, wait for Suspended"
// +kubebuilder:validation:XValidation:rule="!has(self.resources) || !has(oldSelf.resources) || (has(self.resources.requests) == has(oldSelf.resources.requests) && (!has(self.resources.requests) || (self.resources.requests.size() == oldSelf.resources.requests.size() && ['cpu', 'memory', 'ephemeral-storage', 'nvidia.com/gpu'].all(k, (k in self.resources.requests) == (k in oldSelf.resources.requests) && (!(k in self.resources.requests) || quantity(string(self.resources.requests[k])).compareTo(quantity(string(oldSelf.resources.requests[k]))) == 0)))))",fieldPath=".resources",message="spec.resources: can be changed only while the job is suspended or queued: set spec.suspend, wait for Suspended"
// +kubebuilder:validation:XValidation:rule="has(self.hyperparameters) == has(oldSelf.hyperparameters) && (!has(self.hyperparameters) || self.hyperparameters == oldSelf.hyperparameters)",fieldPath=".hyperparameters",message="spec.hyperparameters: can be changed only while the job is suspended or queued: set spec.suspend, wait for Suspended"
// +kubebuilder:validation:XValidation:rule="has(self.checkpoint) == has(oldSelf.checkpoint) && (!has(self.checkpoint) || self.checkpoint == oldSelf.checkpoint)",fieldPath=".checkpoint",message="spec.checkpoint: can be changed only while the job is suspended or queued: set spec.suspend, wait for Suspended"
// +kubebuilder:validation:XValidation:rule="has(self.scheduling) == has(oldSelf.scheduling) && (!has(self.scheduling) || self.scheduling == oldSelf.scheduling)",fieldPath=".scheduling",message="spec.scheduling: can be changed only while the job is suspended or queued: set spec.suspend, wait for Suspended"
// +kubebuilder:validation:XValidation:rule="self.monitoring == oldSelf.monitoring",fieldPath=".monitoring",message="spec.monitoring: can be changed only while the job is suspended or queued: set spec.suspend, wait for Suspended"
// +kubebuilder:validation:XValidation:rule="self.networking == oldSelf.networking",fieldPath=".networking",message="spec.networking: can be changed only while the job is suspended or queued: set spec.suspend, wait for Suspended"
// +kubebuilder:validation:XValidation:rule="self.failurePolicy == oldSelf.failurePolicy",fieldPath=".failurePolicy",message="spec.failurePolicy: can be changed only while the job is suspended or queued: set spec.suspend, wait for Suspended"
// +kubebuilder:validation:XValidation:rule="has(self.successPolicy) == has(oldSelf.successPolicy) && (!has(self.successPolicy) || self.successPolicy == oldSelf.successPolicy)",fieldPath=".successPolicy",message="spec.successPolicy: can be changed only while the job is suspended or queued: set spec.suspend, wait for Suspended"
// +kubebuilder:validation:XValidation:rule="has(self.elastic) == has(oldSelf.elastic) && (!has(self.elastic) || self.elastic == oldSelf.elastic)",fieldPath=".elastic",message="spec.elastic: can be changed only while the job is suspended or queued: set spec.suspend, wait for Suspended"
// +kubebuilder:validation:XValidation:rule="has(self.serviceAccountName) == has(oldSelf.serviceAccountName) && (!has(self.serviceAccountName) || self.serviceAccountName == oldSelf.serviceAccountName)",fieldPath=".serviceAccountName",message="spec.serviceAccountName: can be changed only while the job is suspended or queued: set spec.suspend, wait for Suspended"
// +kubebuilder:validation:XValidation:rule="has(self.securityContext) == has(oldSelf.securityContext) && (!has(self.securityContext) || self.securityContext == oldSelf.securityContext)",fieldPath=".securityContext",message="spec.securityContext: can be changed only while the job is suspended or queued: set spec.suspend, wait for Suspended"
// +kubebuilder:validation:XValidation:rule="has(self.volumes) == has(oldSelf.volumes) && (!has(self.volumes) || self.volumes == oldSelf.volumes)",fieldPath=".volumes",message="spec.volumes: can be changed only while the job is suspended or queued: set spec.suspend, wait for Suspended"
// +kubebuilder:validation:XValidation:rule="has(self.volumeMounts) == has(oldSelf.volumeMounts) && (!has(self.volumeMounts) || self.volumeMounts == oldSelf.volumeMounts)",fieldPath=".volumeMounts",message="spec.volumeMounts: can be changed only while the job is suspended or queued: set spec.suspend, wait for Suspended"
// +kubebuilder:validation:XValidation:rule="has(self.envFrom) == has(oldSelf.envFrom) && (!has(self.envFrom) || self.envFrom == oldSelf.envFrom)",fieldPath=".envFrom",message="spec.envFrom: can be changed only while the job is suspended or queued: set spec.suspend, wait for Suspended"
// +kubebuilder:validation:XValidation:rule="has(self.workingDir) == has(oldSelf.workingDir) && (!has(self.workingDir) || self.workingDir == oldSelf.workingDir)",fieldPath=".workingDir",message="spec.workingDir: can be changed only while the job is suspended or queued: set spec.suspend, wait for Suspended"
// +kubebuilder:validation:XValidation:rule="has(self.podTemplate) == has(oldSelf.podTemplate) && (!has(self.podTemplate) || self.podTemplate == oldSelf.podTemplate)",fieldPath=".podTemplate",message="spec.podTemplate: can be changed only while the job is suspended or queued: set spec.suspend, wait for Suspended"
// +kubebuilder:validation:XValidation:rule="has(self.source) == has(oldSelf.source) && (!has(self.source) || self.source == oldSelf.source)",fieldPath=".source",message="spec.source: can be changed only while the job is suspended or queued: set spec.suspend, wait for Suspended"
// +kubebuilder:validation:XValidation:rule="has(self.serviceAccountName) || !has(self.volumes) || !self.volumes.exists(v, has(v.projected) && has(v.projected.sources) && v.projected.sources.exists(s, has(s.serviceAccountToken)))",fieldPath=".volumes",message="spec.volumes: a serviceAccountToken needs a ServiceAccount that you choose: set spec.serviceAccountName"
// +kubebuilder:validation:XValidation:rule="!has(self.scheduling) || !has(self.scheduling.queueName) || !has(self.podTemplate) || !has(self.podTemplate.resourceClaims) || self.podTemplate.resourceClaims.size() == 0",fieldPath=".podTemplate.resourceClaims",message="spec.podTemplate.resourceClaims: AIJobQueues do not know which nodes have the devices: remove them, or spec.scheduling.queueName"
// +kubebuilder:validation:XValidation:rule="!has(self.scheduling) || !has(self.scheduling.queueName) || !has(self.podTemplate) || !has(self.podTemplate.topologySpreadConstraints) || self.podTemplate.topologySpreadConstraints.all(c, c.whenUnsatisfiable != 'DoNotSchedule')",fieldPath=".podTemplate.topologySpreadConstraints",message="spec.podTemplate.topologySpreadConstraints: queues cannot keep DoNotSchedule: use ScheduleAnyway"
// +kubebuilder:validation:XValidation:rule="has(self.managedBy) == has(oldSelf.managedBy) && (!has(self.managedBy) || self.managedBy == oldSelf.managedBy)",fieldPath=".managedBy",message="spec.managedBy: is immutable: delete the job and create it again"
type TrainingJobSpec struct {
	// model names the model architecture to train. Workers see it as the environment variable MODEL.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=1,displayName="Model",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	Model string `json:"model,omitempty"`

	// dataset names the data set to train on. Workers see it as the environment variable DATASET.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=2,displayName="Data set",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	Dataset string `json:"dataset,omitempty"`

	// numWorkers is the number of worker replicas, 1 to 100. It can be changed while the job exists only within the
	// bounds of elastic.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=3,displayName="Workers",xDescriptors="urn:alm:descriptor:com.tectonic.ui:podCount"
	NumWorkers int32 `json:"numWorkers,omitempty"`

	// gpusPerWorker is the number of GPUs (resource nvidia.com/gpu) of each worker, 0 to 64; 0 trains on CPUs.
	// Default 1.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=64
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=4,displayName="GPUs per worker",xDescriptors="urn:alm:descriptor:com.tectonic.ui:number"
	GPUsPerWorker *int32 `json:"gpusPerWorker,omitempty"`

	// framework is the machine-learning framework whose distributed settings the workers get: pytorch, the default,
	// tensorflow, jax, ray, mpi or xgboost.
	// +kubebuilder:default=pytorch
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=5,displayName="Framework",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:select:pytorch","urn:alm:descriptor:com.tectonic.ui:select:tensorflow","urn:alm:descriptor:com.tectonic.ui:select:jax","urn:alm:descriptor:com.tectonic.ui:select:ray","urn:alm:descriptor:com.tectonic.ui:select:mpi","urn:alm:descriptor:com.tectonic.ui:select:xgboost"}
	Framework Framework `json:"framework,omitempty"`

	// image is the container image of the workers. Default: the operator's own training worker, which knows pytorch, mpi
	// and xgboost; jobs of the other frameworks must name an image.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^\S+$`
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=6,displayName="Image",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	Image string `json:"image,omitempty"`

	// imagePullPolicy says when the image is pulled. Default as for any container: Always for the tag latest,
	// IfNotPresent otherwise.
	// +kubebuilder:validation:Enum=Always;IfNotPresent;Never
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=10,displayName="Image pull policy",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:imagePullPolicy","urn:alm:descriptor:com.tectonic.ui:advanced"}
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`

	// imagePullSecrets name the Secrets in the job's namespace with which the image is pulled, at most 10.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=10
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=11,displayName="Image pull secrets",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`

	// command is the entry point of the worker container. Default: that of the image. With mpi it is what each rank runs,
	// by default the operator's own training worker; with ray it is the driver, which runs on replica 0 and must be
	// named.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=8192
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=7,displayName="Command",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	Command []string `json:"command,omitempty"`

	// args are the arguments of the worker container's entry point.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=8192
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=8,displayName="Arguments",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	Args []string `json:"args,omitempty"`

	// env are additional environment variables of the workers. A variable of the worker contract (MASTER_ADDR, RANK
	// and so on) that is named here takes this value instead.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:XValidation:rule="self.all(e, e.name != '')",message="spec.env: a variable has an empty name: give it one or remove it"
	// +kubebuilder:validation:XValidation:rule="self.all(e, !has(e.value) || e.value == '' || !has(e.valueFrom))",message="spec.env: a variable has both value and valueFrom: keep one of the two"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=9,displayName="Environment variables",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	Env []corev1.EnvVar `json:"env,omitempty"`

	// resources are the requests and limits of one worker. Default: what the installation says, told in status.defaultResources. A nvidia.com/gpu count that equals gpusPerWorker says the
	// same twice; one that equals numWorkers x gpusPerWorker is taken for the whole job's and divided, with a
	// warning event; any other is rejected.
	// +kubebuilder:validation:XValidation:rule="!has(self.limits) || ['cpu', 'memory', 'ephemeral-storage'].all(k, !(k in self.limits) || (isQuantity(string(self.limits[k])) && quantity(string(self.limits[k])).compareTo(quantity('0')) >= 0))",fieldPath=".limits",message="spec.resources.limits: has an amount below 0 or that is no number: write for example cpu: 500m, memory: 32Gi"
	// +kubebuilder:validation:XValidation:rule="!has(self.requests) || ['cpu', 'memory', 'ephemeral-storage'].all(k, !(k in self.requests) || (isQuantity(string(self.requests[k])) && quantity(string(self.requests[k])).compareTo(quantity('0')) >= 0))",fieldPath=".requests",message="spec.resources.requests: has an amount below 0 or that is no number: write for example cpu: 500m, memory: 32Gi"
	// +kubebuilder:validation:XValidation:rule="!has(self.requests) || !has(self.limits) || ['cpu', 'memory', 'ephemeral-storage'].all(k, !(k in self.requests) || !(k in self.limits) || !isQuantity(string(self.requests[k])) || !isQuantity(string(self.limits[k])) || quantity(string(self.requests[k])).compareTo(quantity(string(self.limits[k]))) <= 0)",fieldPath=".requests",message="spec.resources.requests: asks for more cpu, memory or ephemeral-storage than the limit: lower the request or raise the limit"
	// +kubebuilder:validation:XValidation:rule="!has(self.requests) || !has(self.limits) || !('nvidia.com/gpu' in self.requests) || !('nvidia.com/gpu' in self.limits) || string(self.requests['nvidia.com/gpu']) == string(self.limits['nvidia.com/gpu'])",fieldPath=".requests",message="spec.resources.requests: asks for another number of nvidia.com/gpu than the limit, but GPUs cannot be overcommitted: set both to the same number or remove one"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=12,displayName="Resources of a worker",xDescriptors="urn:alm:descriptor:com.tectonic.ui:resourceRequirements"
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// hyperparameters of the training. Workers see them as JSON in HYPERPARAMETERS and one by one, for example
	// LEARNING_RATE.
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=13,displayName="Hyperparameters"
	Hyperparameters *Hyperparameters `json:"hyperparameters,omitempty"`

	// checkpoint says where and when the training's state is saved, and from what to resume. Default: no
	// checkpoints, so that a restart begins at the first epoch.
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=18,displayName="Checkpoints"
	Checkpoint *Checkpoint `json:"checkpoint,omitempty"`

	// scheduling says where and when the workers may run.
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=34,displayName="Scheduling",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	Scheduling *Scheduling `json:"scheduling,omitempty"`

	// monitoring says how progress is read and where experiments are tracked.
	// +kubebuilder:default={}
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=36,displayName="Monitoring",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	Monitoring Monitoring `json:"monitoring,omitzero"`

	// networking says how the workers reach one another.
	// +kubebuilder:default={}
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=37,displayName="Networking",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	Networking Networking `json:"networking,omitzero"`

	// failurePolicy says what happens when a worker fails.
	// +kubebuilder:default={}
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=28,displayName="Failure policy",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	FailurePolicy FailurePolicy `json:"failurePolicy,omitzero"`

	// successPolicy ends the training before its last epoch when it is good enough or no longer improves.
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=32,displayName="Success policy",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	SuccessPolicy *SuccessPolicy `json:"successPolicy,omitempty"`

	// elastic lets the number of workers change while the job runs. Default: it is fixed.
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=33,displayName="Elastic bounds",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	Elastic *Elastic `json:"elastic,omitempty"`

	// suspend stops the workers, after a last checkpoint, until it is false again. Default false.
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=38,displayName="Suspend",xDescriptors="urn:alm:descriptor:com.tectonic.ui:booleanSwitch"
	Suspend *bool `json:"suspend,omitempty"`

	// ttlSecondsAfterFinished deletes the TrainingJob this many seconds after it has finished; its checkpoints are
	// kept. Default: it is never deleted.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=39,displayName="Delete so many seconds after the end",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:number","urn:alm:descriptor:com.tectonic.ui:advanced"}
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`

	// cleanupPolicy says which of the job's objects are deleted once it has finished: None keeps all; Running, the
	// default, deletes pods that still run; All deletes the pods with their logs, the Services and the ConfigMap.
	// Checkpoints are always kept.
	// +kubebuilder:default=Running
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=40,displayName="Clean up at the end",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:select:None","urn:alm:descriptor:com.tectonic.ui:select:Running","urn:alm:descriptor:com.tectonic.ui:select:All","urn:alm:descriptor:com.tectonic.ui:advanced"}
	CleanupPolicy CleanupPolicy `json:"cleanupPolicy,omitempty"`

	// serviceAccountName is the ServiceAccount of the workers. Default: one that the operator creates for the job,
	// without any permission.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=41,displayName="Service account",xDescriptors={"urn:alm:descriptor:io.kubernetes:ServiceAccount","urn:alm:descriptor:com.tectonic.ui:advanced"}
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// securityContext is the pod security context of the workers. Default: user and group 1000, not root, with the
	// runtime's default seccomp profile, as the Pod Security level restricted asks for.
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=42,displayName="Security context",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	SecurityContext *corev1.PodSecurityContext `json:"securityContext,omitempty"`

	// managedBy is who acts on the job: ml.example.com/trainingjob-controller, the operator of this cluster, or kueue.x-k8s.io/multikueue, Kueue,
	// which runs it in another cluster and copies its status back. The operator then does nothing with the job. It cannot be changed.
	// Default: the operator of this cluster.
	// +kubebuilder:validation:Enum=ml.example.com/trainingjob-controller;kueue.x-k8s.io/multikueue
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=43,displayName="Managed by",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:text","urn:alm:descriptor:com.tectonic.ui:advanced"}
	ManagedBy string `json:"managedBy,omitempty"`

	// source is the code of the program: a ConfigMap, a commit of a git repository, an OCI artifact or an archive, unpacked before the
	// program starts and its working directory unless workingDir names another. Default: none, and the image has the code.
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Source",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	Source *podtemplate.Source `json:"source,omitempty"`

	podtemplate.Settings `json:",inline"`
}

// The managers of jobs.
const (
	// ManagedByOperator is the operator of the job's own cluster.
	ManagedByOperator = "ml.example.com/trainingjob-controller"
	// ManagedByMultiKueue is Kueue, which runs the job in another cluster.
	ManagedByMultiKueue = "kueue.x-k8s.io/multikueue"
)

// IsManagedElsewhere says whether the operator leaves a job alone.
func (j *TrainingJob) IsManagedElsewhere() bool {
	return j.Spec.ManagedBy != "" && j.Spec.ManagedBy != ManagedByOperator
}

// Framework is a machine-learning framework.
// +kubebuilder:validation:Enum=pytorch;tensorflow;jax;ray;mpi;xgboost
type Framework string

// The supported frameworks.
const (
	FrameworkPyTorch    Framework = "pytorch"
	FrameworkTensorFlow Framework = "tensorflow"
	FrameworkJAX        Framework = "jax"
	FrameworkRay        Framework = "ray"
	FrameworkMPI        Framework = "mpi"
	FrameworkXGBoost    Framework = "xgboost"
)

// CleanupPolicy says what is deleted when a job has finished.
// +kubebuilder:validation:Enum=None;Running;All
type CleanupPolicy string

// The clean-up policies.
const (
	// CleanupNone keeps every object.
	CleanupNone CleanupPolicy = "None"
	// CleanupRunning deletes pods that still run.
	CleanupRunning CleanupPolicy = "Running"
	// CleanupAll deletes the Job with its pods, the Services and the ConfigMap.
	CleanupAll CleanupPolicy = "All"
)

// Hyperparameters of a training. All are handed to the workers as they are.
type Hyperparameters struct {
	// learningRate is the optimizer's step size, above 0. Workers see it as LEARNING_RATE.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:ExclusiveMinimum=true
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=16,displayName="Learning rate",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:text","urn:alm:descriptor:com.tectonic.ui:fieldGroup:hyperparameters"}
	LearningRate *float64 `json:"learningRate,omitempty"`

	// batchSize is the number of samples per step and worker. Workers see it as BATCH_SIZE.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=15,displayName="Batch size",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:number","urn:alm:descriptor:com.tectonic.ui:fieldGroup:hyperparameters"}
	BatchSize *int32 `json:"batchSize,omitempty"`

	// epochs is the number of passes over the data set. Workers see it as EPOCHS.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=14,displayName="Epochs",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:number","urn:alm:descriptor:com.tectonic.ui:fieldGroup:hyperparameters"}
	Epochs *int32 `json:"epochs,omitempty"`

	// optimizer is the optimization algorithm. Workers see it as OPTIMIZER.
	// +kubebuilder:validation:Enum=adam;sgd;adamw;rmsprop
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=17,displayName="Optimizer",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:select:adam","urn:alm:descriptor:com.tectonic.ui:select:sgd","urn:alm:descriptor:com.tectonic.ui:select:adamw","urn:alm:descriptor:com.tectonic.ui:select:rmsprop","urn:alm:descriptor:com.tectonic.ui:fieldGroup:hyperparameters"}
	Optimizer string `json:"optimizer,omitempty"`

	// warmupSteps is the number of steps over which the learning rate rises to its value. Workers see it as
	// WARMUP_STEPS.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	WarmupSteps *int32 `json:"warmupSteps,omitempty"`

	// gradientAccumulationSteps is the number of batches whose gradients are added up before a step. Workers see it
	// as GRADIENT_ACCUMULATION_STEPS.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	GradientAccumulationSteps *int32 `json:"gradientAccumulationSteps,omitempty"`

	// mixedPrecision trains with 16-bit floating point where it is safe. Workers see it as MIXED_PRECISION.
	MixedPrecision *bool `json:"mixedPrecision,omitempty"`

	// additionalParams are further parameters by name. Workers see each under its name in upper snake case, for
	// example weight_decay as WEIGHT_DECAY. At most 100.
	// +kubebuilder:validation:MaxProperties=100
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.matches('^[A-Za-z_][A-Za-z0-9_.-]*$'))",message="spec.hyperparameters.additionalParams: a name cannot be made an environment variable: use letters, digits, _, - and . in names, starting with a letter or _"
	AdditionalParams map[string]ParamValue `json:"additionalParams,omitempty"`
}

// ParamValue is the value of an additional hyperparameter, at most 4096 characters.
// +kubebuilder:validation:MaxLength=4096
type ParamValue string

// Scheduling says where and when workers may run.
type Scheduling struct {
	// priority is the name of the PriorityClass of the workers.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=35,displayName="Priority class",xDescriptors={"urn:alm:descriptor:io.kubernetes:PriorityClass","urn:alm:descriptor:com.tectonic.ui:fieldGroup:scheduling"}
	Priority string `json:"priority,omitempty"`

	// nodeSelector are labels that a node must have, at most 64.
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=64
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// affinity of the workers to nodes and to other pods.
	Affinity *corev1.Affinity `json:"affinity,omitempty"`

	// tolerations of node taints, at most 64.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.operator) || t.operator in ['', 'Exists', 'Equal', 'Lt', 'Gt'])",message="spec.scheduling.tolerations: has an unknown operator: use Exists, or Equal with a value"
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.effect) || t.effect in ['', 'NoSchedule', 'PreferNoSchedule', 'NoExecute'])",message="spec.scheduling.tolerations: has an unknown effect: use NoSchedule, PreferNoSchedule or NoExecute, or leave it out for all of them"
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// queueName is the AIJobQueue that admits the job: no worker is started before all of them have their place on nodes,
	// within the limits of the queue. The value of the PriorityClass that priority names, of 0 to 100 and else 50, is the
	// job's priority in the queue; a job that keeps checkpoints can lose its place to one of higher priority. Default: none,
	// and the job is started at once.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	QueueName string `json:"queueName,omitempty"`

	// gang starts no worker before all of them fit. Default true when there is more than one worker.
	Gang *bool `json:"gang,omitempty"`

	// schedulerName is the scheduler of the worker pods. Default: the cluster's default scheduler.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	SchedulerName string `json:"schedulerName,omitempty"`

	// spot provisions spot instances for the workers.
	Spot *SpotReference `json:"spot,omitempty"`
}

// SpotReference names the SpotInstanceVM that describes the instances to provision.
type SpotReference struct {
	// name of a SpotInstanceVM in the namespace of the job.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`
}

// Monitoring says how progress is read and where experiments are tracked.
//
// +kubebuilder:validation:XValidation:rule="!has(self.wandbSecretRef) || has(self.wandbProject)",fieldPath=".wandbProject",message="spec.monitoring.wandbProject: is missing although wandbSecretRef is set: name the project, or remove wandbSecretRef"
// +kubebuilder:validation:XValidation:rule="!has(self.mlflowTrackingUri) || !self.mlflowTrackingUri.matches('^[^/]*//[^/?#]*@')",fieldPath=".mlflowTrackingUri",message="spec.monitoring.mlflowTrackingUri: must not hold a user or password, which everyone who may see the job would read: use a Secret, as the variables MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD in spec.env by valueFrom.secretKeyRef"
// +kubebuilder:validation:XValidation:rule="!has(self.tensorboardEnabled) || !self.tensorboardEnabled || !has(self.metricsPort) || self.metricsPort != 6006",fieldPath=".metricsPort",message="spec.monitoring.metricsPort: 6006 is the port of TensorBoard beside replica 0: choose another, or set tensorboardEnabled to false"
type Monitoring struct {
	// enabled lets the operator read metrics from replica 0 while it trains. Default true.
	// +kubebuilder:default=true
	Enabled *bool `json:"enabled,omitempty"`

	// metricsPort is the port at which each worker serves Prometheus text under /metrics. Default 8080.
	// +kubebuilder:default=8080
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=65535
	MetricsPort int32 `json:"metricsPort,omitempty"`

	// tensorboardEnabled runs TensorBoard beside replica 0, at port 6006 of the Service <job>-tensorboard, for the event
	// files that workers write below TENSORBOARD_LOGDIR. With storage on a claim these outlive the job; TensorBoard itself
	// ends with the workers. Default false.
	TensorboardEnabled *bool `json:"tensorboardEnabled,omitempty"`

	// tensorboardImage is an image with the commands tensorboard and sh. Default: what the installation says
	// (--tensorboard-image).
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	TensorboardImage string `json:"tensorboardImage,omitempty"`

	// mlflowTrackingUri is the address of an MLflow tracking server, without user and password: these belong into a Secret,
	// as the variables MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD. Workers see it as MLFLOW_TRACKING_URI.
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^[a-z][a-z0-9+.-]*://\S+$`
	MLflowTrackingURI string `json:"mlflowTrackingUri,omitempty"`

	// wandbProject is a project of Weights & Biases. Workers see it as WANDB_PROJECT.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	WandbProject string `json:"wandbProject,omitempty"`

	// wandbSecretRef names the key of a Secret in the job's namespace that holds the API key of Weights & Biases.
	// Workers see it as WANDB_API_KEY.
	WandbSecretRef *corev1.SecretKeySelector `json:"wandbSecretRef,omitempty"`
}

// Networking says how the workers reach one another.
//
// +kubebuilder:validation:XValidation:rule="!has(self.rdmaResource) || (has(self.rdmaEnabled) && self.rdmaEnabled)",fieldPath=".rdmaResource",message="spec.networking.rdmaResource: needs rdmaEnabled: set spec.networking.rdmaEnabled to true or remove rdmaResource"
type Networking struct {
	// backend of collective communication: nccl, gloo or mpi. Default nccl with GPUs, gloo without.
	// +kubebuilder:validation:Enum=nccl;gloo;mpi
	Backend string `json:"backend,omitempty"`

	// masterPort is the port at which replica 0 gathers the others. Default 29500.
	// +kubebuilder:default=29500
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=65535
	MasterPort int32 `json:"masterPort,omitempty"`

	// isolation says who may connect to the workers. None: every pod of the cluster. Job: only the job's own pods at all
	// ports; the manager's namespace at the ports of the metrics, the checkpoint agent and TensorBoard; and namespaces
	// labelled metrics=enabled at the port of the metrics. Job takes a NetworkPolicy named <job>-training, which a network
	// plugin must enforce. Default: what the installation says (--isolate-jobs), Job unless it was changed; for the framework ray
	// always Job. Workers that run when the default changes keep what they were started with.
	Isolation Isolation `json:"isolation,omitempty"`

	// preflight has an init container of each worker check, before each start of the training, that all workers reach one
	// another: by their names, at masterPort, and at a port chosen at random, as collective libraries choose theirs. The
	// training waits until they do; the condition NetworkReady names the workers that do not, and the cause. It takes a few
	// seconds. Without effect on a single worker, and on workers that come and go one by one (spec.elastic). Default false.
	Preflight *bool `json:"preflight,omitempty"`

	// rdmaEnabled asks for an RDMA device and the capability IPC_LOCK for each worker. Pods with that capability do
	// not meet the Pod Security levels baseline and restricted. Default false.
	RDMAEnabled *bool `json:"rdmaEnabled,omitempty"`

	// rdmaResource is the extended resource that stands for an RDMA device. Default rdma/hca.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	RDMAResource string `json:"rdmaResource,omitempty"`
}

// Isolation says who may connect to the workers of a job.
// +kubebuilder:validation:Enum=None;Job
type Isolation string

// The kinds of isolation.
const (
	// IsolationNone lets every pod of the cluster connect.
	IsolationNone Isolation = "None"
	// IsolationJob lets the job's own pods connect, and those that read its metrics.
	IsolationJob Isolation = "Job"
)

// Elastic are the bounds within which the number of workers may change.
//
// +kubebuilder:validation:XValidation:rule="self.minWorkers <= self.maxWorkers",fieldPath=".minWorkers",messageExpression="'spec.elastic.minWorkers: %d is more than maxWorkers %d: lower it or raise maxWorkers'.format([self.minWorkers, self.maxWorkers])"
type Elastic struct {
	// minWorkers is the smallest number of workers with which the training goes on, 1 to 100.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	MinWorkers int32 `json:"minWorkers,omitempty"`

	// maxWorkers is the largest number of workers, 1 to 100.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	MaxWorkers int32 `json:"maxWorkers,omitempty"`

	// rescalePolicy says what happens when numWorkers changes. InPlace, for framework pytorch only: workers come and go
	// one by one while the others stay, and come together again by torchrun's elastic rendezvous; a worker that is lost
	// is replaced while the others train on, as long as at least minWorkers are left. Restart: all workers are started
	// again from the newest checkpoint. Default: InPlace for the operator's own worker image and for commands that start
	// torchrun, else Restart.
	RescalePolicy RescalePolicy `json:"rescalePolicy,omitempty"`
}

// RescalePolicy says what happens when the number of workers of an elastic job changes.
// +kubebuilder:validation:Enum=InPlace;Restart
type RescalePolicy string

// The rescale policies.
const (
	// RescaleInPlace lets the workers that stay go on.
	RescaleInPlace RescalePolicy = "InPlace"
	// RescaleRestart starts all workers again from the newest checkpoint.
	RescaleRestart RescalePolicy = "Restart"
)

// FailurePolicy says what happens when a worker fails.
type FailurePolicy struct {
	// restartPolicy says after which failures the whole job is started again from its newest checkpoint: OnFailure,
	// the default, after any (but see nonRetryableExitCodes); ExitCode only after exit codes of 128 and more, which
	// stand for signals, and after 75, with which a worker says that it lost another; Never after none. Losing a pod
	// to preemption, eviction or the loss of its node is no failure, and the job is always started again.
	// +kubebuilder:default=OnFailure
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=29,displayName="Restart after",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:select:OnFailure","urn:alm:descriptor:com.tectonic.ui:select:ExitCode","urn:alm:descriptor:com.tectonic.ui:select:Never","urn:alm:descriptor:com.tectonic.ui:fieldGroup:failurePolicy"}
	RestartPolicy RestartPolicy `json:"restartPolicy,omitempty"`

	// backoffLimit is the number of restarts after failures before the job is Failed, 0 to 1000. Default 3.
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=30,displayName="Restarts after failures",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:number","urn:alm:descriptor:com.tectonic.ui:fieldGroup:failurePolicy"}
	BackoffLimit *int32 `json:"backoffLimit,omitempty"`

	// activeDeadlineSeconds is the time from the start of the job, restarts included, or from its last resumption,
	// after which it is stopped and Failed. Default: no limit.
	// +kubebuilder:validation:Minimum=1
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=31,displayName="Time limit in seconds",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:number","urn:alm:descriptor:com.tectonic.ui:fieldGroup:failurePolicy"}
	ActiveDeadlineSeconds *int64 `json:"activeDeadlineSeconds,omitempty"`

	// nonRetryableExitCodes are exit codes of a worker, 1 to 255, after which the job is Failed at once, at most 64
	// of them. Default 64 and 65 (EX_USAGE and EX_DATAERR of sysexits.h), with which a worker says that its
	// settings or its data are wrong.
	// +listType=set
	// +kubebuilder:default={64,65}
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:Minimum=1
	// +kubebuilder:validation:items:Maximum=255
	NonRetryableExitCodes []int32 `json:"nonRetryableExitCodes,omitempty"`
}

// RestartPolicy says after which failures a job is started again.
// +kubebuilder:validation:Enum=OnFailure;ExitCode;Never
type RestartPolicy string

// The restart policies.
const (
	// RestartOnFailure restarts after any retryable failure.
	RestartOnFailure RestartPolicy = "OnFailure"
	// RestartExitCode restarts after exit codes of 128 and more.
	RestartExitCode RestartPolicy = "ExitCode"
	// RestartNever restarts after no failure.
	RestartNever RestartPolicy = "Never"
)

// SuccessPolicy ends the training before its last epoch. The worker takes a last checkpoint and exits with 0.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.targetAccuracy) && has(self.targetMetric))",fieldPath=".targetMetric",message="spec.successPolicy.targetMetric: cannot stand beside targetAccuracy, which means the metric accuracy: keep one of the two"
// +kubebuilder:validation:XValidation:rule="has(self.targetAccuracy) || has(self.targetMetric) || has(self.earlyStoppingPatience)",message="spec.successPolicy: is empty: set targetAccuracy, targetMetric or earlyStoppingPatience, or remove successPolicy"
type SuccessPolicy struct {
	// targetAccuracy ends the training when the reported accuracy is at least this, above 0 and up to 1.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:ExclusiveMinimum=true
	// +kubebuilder:validation:Maximum=1
	TargetAccuracy *float64 `json:"targetAccuracy,omitempty"`

	// targetMetric ends the training when a reported metric reaches a value.
	TargetMetric *TargetMetric `json:"targetMetric,omitempty"`

	// earlyStoppingPatience ends the training after this many epochs without improvement, at least 1.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	EarlyStoppingPatience *int32 `json:"earlyStoppingPatience,omitempty"`
}

// TargetMetric is a value that a reported metric is to reach.
type TargetMetric struct {
	// name of the metric as the worker reports it, for example loss.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[A-Za-z_][A-Za-z0-9_./-]*$`
	Name string `json:"name,omitempty"`

	// value to reach.
	// +required
	Value *float64 `json:"value,omitempty"`

	// mode says whether a larger value (max, the default) or a smaller one (min) is better.
	// +kubebuilder:default=max
	// +kubebuilder:validation:Enum=max;min
	Mode string `json:"mode,omitempty"`
}
