package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dcnlab/spot-training-operator/api/podtemplate"
)

// AIJobQueue says in which order and how many jobs run at a time. Jobs of every namespace may name it.
//
// The name is at most 63 characters and a DNS label, because it is the value of a label of its jobs.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=aijobqueues,singular=aijobqueue,scope=Cluster,shortName=aijq,categories=ml
// +kubebuilder:printcolumn:name="Algorithm",type=string,JSONPath=`.spec.algorithm`,description="Order in which jobs are admitted"
// +kubebuilder:printcolumn:name="Depth",type=integer,JSONPath=`.status.depth`,description="Jobs that wait"
// +kubebuilder:printcolumn:name="Running",type=integer,JSONPath=`.status.running`,description="Jobs that run"
// +kubebuilder:printcolumn:name="Max",type=integer,JSONPath=`.spec.maxConcurrency`,description="Jobs that may run at a time"
// +kubebuilder:printcolumn:name="Oldest",type=date,JSONPath=`.status.oldestQueuedTime`,description="How long the oldest job waits"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether the queue admits jobs"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Preemption",type=string,priority=1,JSONPath=`.spec.preemptionPolicy`,description="Whether jobs of lower priority lose their place"
// +kubebuilder:printcolumn:name="GPUs",type=integer,priority=1,JSONPath=`.status.usage.gpus`,description="GPUs in use"
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why it is or is not ready"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",fieldPath=".spec",message="metadata.name: must be at most 63 characters of a-z, 0-9 and '-', because it is the value of a label: choose a shorter or simpler name"
// +operator-sdk:csv:customresourcedefinitions:displayName="AI Job Queue",order=5,resources={{AIJob,v1alpha1}}
type AIJobQueue struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec says which jobs are admitted, and in which order. It can be changed at any time; jobs that run stay.
	// +required
	Spec AIJobQueueSpec `json:"spec"`

	// status is what the operator observed. It is written by the operator only.
	Status AIJobQueueStatus `json:"status,omitzero"`
}

// AIJobQueueList is a list of AIJobQueues.
//
// +kubebuilder:object:root=true
type AIJobQueueList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard list metadata.
	metav1.ListMeta `json:"metadata,omitzero"`

	// items are the AIJobQueues.
	// +required
	Items []AIJobQueue `json:"items"`
}

// StatusConditions gives access to the conditions in the status.
func (q *AIJobQueue) StatusConditions() *[]metav1.Condition { return &q.Status.Conditions }

// AIJobQueueSpec says which jobs are admitted, and in which order.
//
// +kubebuilder:validation:XValidation:rule="!has(self.userLimits) || !has(self.userLimits.maxConcurrency) || self.userLimits.maxConcurrency <= self.maxConcurrency",fieldPath=".userLimits.maxConcurrency",messageExpression="'spec.userLimits.maxConcurrency: %d is more than maxConcurrency %d of the whole queue: lower it or raise spec.maxConcurrency'.format([self.userLimits.maxConcurrency, self.maxConcurrency])"
// +kubebuilder:validation:XValidation:rule="!has(self.namespaceLimits) || !has(self.namespaceLimits.maxConcurrency) || self.namespaceLimits.maxConcurrency <= self.maxConcurrency",fieldPath=".namespaceLimits.maxConcurrency",messageExpression="'spec.namespaceLimits.maxConcurrency: %d is more than maxConcurrency %d of the whole queue: lower it or raise spec.maxConcurrency'.format([self.namespaceLimits.maxConcurrency, self.maxConcurrency])"
// +kubebuilder:validation:XValidation:rule="!has(self.borrowingLimits) || has(self.cohort)",fieldPath=".borrowingLimits",message="spec.borrowingLimits: has no use without a cohort to borrow from: name one in spec.cohort, or remove borrowingLimits"
// +kubebuilder:validation:XValidation:rule="!has(self.cohort) || has(self.quotas)",fieldPath=".cohort",message="spec.cohort: has no use without quotas, which are what queues lend one another: set spec.quotas, or remove cohort"
// +kubebuilder:validation:XValidation:rule="!has(self.borrowingLimits) || !has(self.quotas) || ((!has(self.borrowingLimits.gpus) || has(self.quotas.gpus)) && (!has(self.borrowingLimits.cpu) || has(self.quotas.cpu)) && (!has(self.borrowingLimits.memory) || has(self.quotas.memory)))",fieldPath=".borrowingLimits",message="spec.borrowingLimits: limits a resource that spec.quotas does not limit, so that nothing is borrowed of it: add it to spec.quotas, or remove it here"
type AIJobQueueSpec struct {
	// maxConcurrency is the number of jobs that may run at a time, 1 to 100000. Default 100.
	// +kubebuilder:default=100
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=1,displayName="Jobs at a time",xDescriptors="urn:alm:descriptor:com.tectonic.ui:number"
	MaxConcurrency int32 `json:"maxConcurrency,omitempty"`

	// priorityClass is the name of the PriorityClass of the jobs' pods. When the cluster has none of that name the pods
	// get the cluster's default, and the condition Ready says so. Default: the cluster's default.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=4,displayName="Priority class of the pods",xDescriptors="urn:alm:descriptor:io.kubernetes:PriorityClass"
	PriorityClass string `json:"priorityClass,omitempty"`

	// preemptionPolicy says whether a job that does not fit may take the place of running preemptible jobs of lower
	// priority: PreemptLowerPriority, or Never, the default.
	// +kubebuilder:default=Never
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=3,displayName="Preemption",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:select:Never","urn:alm:descriptor:com.tectonic.ui:select:PreemptLowerPriority"}
	PreemptionPolicy PreemptionPolicy `json:"preemptionPolicy,omitempty"`

	// algorithm is the order in which jobs are admitted: priority, the default, the highest first and among equals the
	// oldest; fifo, the oldest first; fair-share, the namespace with the least in use first.
	// +kubebuilder:default=priority
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=2,displayName="Order",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:select:priority","urn:alm:descriptor:com.tectonic.ui:select:fifo","urn:alm:descriptor:com.tectonic.ui:select:fair-share"}
	Algorithm QueueAlgorithm `json:"algorithm,omitempty"`

	// quotas limit what the running jobs of the queue hold together. With a cohort they are what the queue has for certain.
	// Default: no limit.
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=5,displayName="Limits of all jobs",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	Quotas *ResourceLimits `json:"quotas,omitempty"`

	// cohort is a name that queues share which lend one another what they leave unused of their quotas. Default: none, and
	// the queue neither lends nor borrows.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=9,displayName="Cohort",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	Cohort string `json:"cohort,omitempty"`

	// borrowingLimits are what the running jobs may hold beyond the quotas, of what other queues of the cohort leave unused.
	// Default: all that is unused.
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=10,displayName="Borrowed at most",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	BorrowingLimits *ResourceLimits `json:"borrowingLimits,omitempty"`

	// namespaceSelector selects by their labels the namespaces whose jobs the queue admits. Jobs of other namespaces wait
	// for NamespaceNotSelected; those that run go on. A selector that is not valid selects none. Default: all namespaces.
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=12,displayName="Namespaces",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// maxPriority is the highest priority that a job of the queue may have, 0 to 100. Jobs above it wait for PriorityTooHigh;
	// those that run go on. A TrainingJob without a PriorityClass has 50. Default: 100.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=13,displayName="Highest priority",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:advanced","urn:alm:descriptor:com.tectonic.ui:number"}
	MaxPriority *int32 `json:"maxPriority,omitempty"`

	// workers are pods that stay and take the queue's tasks from the job service, one after the other. Default: none, and
	// jobs without an image wait.
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=11,displayName="Pooled workers",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	Workers *WorkerPool `json:"workers,omitempty"`

	// userLimits limit what the running jobs of one user hold together. Jobs whose user is not known count as those of one
	// user. Default: no limit.
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=6,displayName="Limits of a user",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	UserLimits *TenantLimits `json:"userLimits,omitempty"`

	// namespaceLimits limit what the running jobs of one namespace hold together. Default: no limit.
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=7,displayName="Limits of a namespace",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	NamespaceLimits *TenantLimits `json:"namespaceLimits,omitempty"`

	// suspend admits no further job; jobs that run go on. Default false.
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=8,displayName="Admit no further job",xDescriptors="urn:alm:descriptor:com.tectonic.ui:booleanSwitch"
	Suspend *bool `json:"suspend,omitempty"`
}

// WorkerPool are pods of one Deployment that take a queue's tasks, as many as the tasks that wait need.
//
// +kubebuilder:validation:XValidation:rule="!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",fieldPath=".minReplicas",messageExpression="'minReplicas: %d is more than maxReplicas %d: lower it or raise maxReplicas'.format([self.minReplicas, self.maxReplicas])"
// +kubebuilder:validation:XValidation:rule="has(self.__namespace__) || !has(self.volumes) || !self.volumes.exists(v, has(v.secret) || has(v.projected) || has(v.csi) || has(v.ephemeral) || has(v.persistentVolumeClaim))",fieldPath=".volumes",message="spec.workers.volumes: workers in the operator's own namespace may not have its Secrets and claims: set spec.workers.namespace, or use configMap, downwardAPI, emptyDir, nfs or image"
// +kubebuilder:validation:XValidation:rule="has(self.__namespace__) || !has(self.envFrom) || !self.envFrom.exists(e, has(e.secretRef))",fieldPath=".envFrom",message="spec.workers.envFrom: workers in the operator's own namespace may not have its Secrets: set spec.workers.namespace, or remove secretRef"
// +kubebuilder:validation:XValidation:rule="has(self.__namespace__) || !has(self.podTemplate) || !has(self.podTemplate.initContainers) || !self.podTemplate.initContainers.exists(c, (has(c.envFrom) && c.envFrom.exists(e, has(e.secretRef))) || (has(c.env) && c.env.exists(e, has(e.valueFrom) && has(e.valueFrom.secretKeyRef))))",fieldPath=".podTemplate.initContainers",message="spec.workers.podTemplate.initContainers: workers in the operator's own namespace may not have its Secrets: set spec.workers.namespace, or remove secretRef and secretKeyRef"
// +kubebuilder:validation:XValidation:rule="!has(self.volumes) || !self.volumes.exists(v, has(v.projected) && has(v.projected.sources) && v.projected.sources.exists(s, has(s.serviceAccountToken)))",fieldPath=".volumes",message="spec.workers.volumes: workers run as a ServiceAccount of the operator's, whose token is not for other programs: remove serviceAccountToken"
type WorkerPool struct {
	// image of the workers, a program that leases tasks from the job service. Default: the operator's own, which does all types
	// of job.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^\S+$`
	Image string `json:"image,omitempty"`

	// command is run in the place of the image's entrypoint, at most 64 words. Default: the image's own.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=32768
	Command []string `json:"command,omitempty"`

	// args are its arguments, at most 64. Default: the image's own.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=32768
	Args []string `json:"args,omitempty"`

	// namespace of the Deployment. Default: that of the operator.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace,omitempty"`

	// minReplicas is the number of pods that stay when there is nothing to do, at least 0. Default 0.
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	MinReplicas *int32 `json:"minReplicas,omitempty"`

	// maxReplicas is the number of pods at most, 1 to 1000. Default 10.
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxReplicas *int32 `json:"maxReplicas,omitempty"`

	// tasksPerWorker is the number of tasks that wait or run for which there should be one pod, 1 to 10000. Default 10.
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	TasksPerWorker *int32 `json:"tasksPerWorker,omitempty"`

	// idleSeconds is how long there must have been less to do before pods are taken away, 0 to 86400. Default 60.
	// None is taken away while a task runs.
	// +kubebuilder:default=60
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	IdleSeconds *int32 `json:"idleSeconds,omitempty"`

	// env are environment variables of the workers, at most 256. The operator's own JOB_SERVICE_URL, JOB_SERVICE_CA_FILE, JOB_SERVICE_TOKEN_FILE, QUEUE,
	// WORKER_ID and GRACE_SECONDS count more.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	Env []corev1.EnvVar `json:"env,omitempty"`

	// resources are the requests and limits of each pod. Default: none.
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// nodeSelector are labels that the nodes must have. At most 64.
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=64
	NodeSelector map[string]LabelValue `json:"nodeSelector,omitempty"`

	// tolerations of node taints, at most 64.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.operator) || t.operator in ['', 'Exists', 'Equal', 'Lt', 'Gt'])",message="spec.workers.tolerations: has an unknown operator: use Exists, or Equal with a value"
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.effect) || t.effect in ['', 'NoSchedule', 'PreferNoSchedule', 'NoExecute'])",message="spec.workers.tolerations: has an unknown effect: use NoSchedule, PreferNoSchedule or NoExecute, or leave it out for all of them"
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	PodOptions `json:",inline"`

	podtemplate.Settings `json:",inline"`
}

// PreemptionPolicy says whether jobs of lower priority may lose their place.
// +kubebuilder:validation:Enum=Never;PreemptLowerPriority
type PreemptionPolicy string

// The preemption policies.
const (
	// PreemptNever lets every running job end.
	PreemptNever PreemptionPolicy = "Never"
	// PreemptLowerPriority takes the place of preemptible jobs of lower priority.
	PreemptLowerPriority PreemptionPolicy = "PreemptLowerPriority"
)

// QueueAlgorithm is the order in which a queue admits jobs.
// +kubebuilder:validation:Enum=priority;fifo;fair-share
type QueueAlgorithm string

// The queue algorithms.
const (
	// QueueByPriority admits the highest priority first, among equals the oldest.
	QueueByPriority QueueAlgorithm = "priority"
	// QueueFIFO admits the oldest first.
	QueueFIFO QueueAlgorithm = "fifo"
	// QueueFairShare admits from the namespace that has the least in use.
	QueueFairShare QueueAlgorithm = "fair-share"
)

// ResourceLimits limit what running jobs hold together.
//
// +kubebuilder:validation:MinProperties=1
type ResourceLimits struct {
	// gpus is the number of GPUs (resource nvidia.com/gpu), at least 0.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	GPUs *int32 `json:"gpus,omitempty"`

	// cpu is the sum of CPU requests, above 0, for example 400.
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).isGreaterThan(quantity('0'))",message="cpu: must be above 0: write for example 400 or 500m"
	CPU *resource.Quantity `json:"cpu,omitempty"`

	// memory is the sum of memory requests in bytes, above 0, for example 2Ti.
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).isGreaterThan(quantity('0'))",message="memory: must be above 0: write for example 512Gi"
	Memory *resource.Quantity `json:"memory,omitempty"`
}

// TenantLimits limit what the running jobs of one user or one namespace hold together.
//
// +kubebuilder:validation:MinProperties=1
type TenantLimits struct {
	// maxConcurrency is the number of jobs that may run at a time, at least 1 and at most that of the queue.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	MaxConcurrency *int32 `json:"maxConcurrency,omitempty"`

	ResourceLimits `json:",inline"`
}

// AIJobQueueStatus is what the operator observed.
type AIJobQueueStatus struct {
	// observedGeneration is the metadata.generation that this status speaks of.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are Ready and, while the queue has pooled workers, WorkersReady, with a reason and a message.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=4,displayName="Conditions",xDescriptors="urn:alm:descriptor:io.kubernetes.conditions"
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// depth is the number of jobs that wait.
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=1,displayName="Jobs that wait",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	Depth int32 `json:"depth"`

	// running is the number of jobs that run.
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=2,displayName="Jobs that run",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	Running int32 `json:"running"`

	// oldestQueuedTime is since when the job waits that waits longest.
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=3,displayName="Oldest waits since",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	OldestQueuedTime *metav1.Time `json:"oldestQueuedTime,omitempty"`

	// workers are the pooled workers, while the queue has some.
	Workers *WorkerPoolStatus `json:"workers,omitempty"`

	// usage is what the running jobs hold together.
	Usage *ResourceUsage `json:"usage,omitempty"`
}

// WorkerPoolStatus is what the operator observed of pooled workers.
type WorkerPoolStatus struct {
	// replicas is the number of pods that there should be.
	Replicas int32 `json:"replicas"`

	// ready is the number of pods that are ready.
	Ready int32 `json:"ready"`

	// waitingTasks is the number of tasks that wait for a worker.
	WaitingTasks int32 `json:"waitingTasks"`

	// runningTasks is the number of tasks that workers have.
	RunningTasks int32 `json:"runningTasks"`
}

// ResourceUsage is what jobs hold together.
type ResourceUsage struct {
	// gpus is the number of GPUs.
	GPUs int32 `json:"gpus"`

	// cpu is the sum of CPU requests.
	CPU *resource.Quantity `json:"cpu,omitempty"`

	// memory is the sum of memory requests in bytes.
	Memory *resource.Quantity `json:"memory,omitempty"`
}
