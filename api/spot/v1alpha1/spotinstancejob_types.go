package v1alpha1

import (
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SpotInstanceJob runs the same Job several times at once on spot instances, so that one goes on when another is
// preempted, and takes checkpoints of the running containers from which a lost replica starts again. It is complete when
// one replica is.
//
// The name is at most 50 characters and a DNS label that starts with a letter, because it prefixes the names of Jobs
// and pods.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.activeReplicas
// +kubebuilder:resource:path=spotinstancejobs,singular=spotinstancejob,shortName=sij,categories=ml
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`,description="Phase of the job"
// +kubebuilder:printcolumn:name="Replicas",type=integer,JSONPath=`.spec.replicas`,description="Replicas that should run"
// +kubebuilder:printcolumn:name="Active",type=integer,JSONPath=`.status.activeReplicas`,description="Replicas that run"
// +kubebuilder:printcolumn:name="Checkpoint",type=date,JSONPath=`.status.lastCheckpointTime`,description="Time since the last checkpoint"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether the operator acts on the job"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Preemptions",type=integer,priority=1,JSONPath=`.status.preemptionCount`,description="Replicas lost to preemption so far"
// +kubebuilder:printcolumn:name="VM",type=string,priority=1,JSONPath=`.spec.spotInstanceVMRef.name`,description="Instances to provision"
// +kubebuilder:printcolumn:name="Image",type=string,priority=1,JSONPath=`.status.lastCheckpointImage`,description="Image of the last checkpoint"
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why it is or is not ready"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 50 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",fieldPath=".spec",message="metadata.name: must be at most 50 characters of a-z, 0-9 and '-', starting with a letter and ending with a letter or digit, because it prefixes the names of Jobs and pods: choose a shorter or simpler name"
// +operator-sdk:csv:customresourcedefinitions:displayName="Spot Instance Job",order=2,resources={{Job,v1},{Pod,v1}}
type SpotInstanceJob struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec says what to run, how often, and how it is kept alive. All but what the containers
	// run can be changed.
	// +required
	Spec SpotInstanceJobSpec `json:"spec,omitzero"`

	// status is what the operator observed. It is written by the operator only.
	Status SpotInstanceJobStatus `json:"status,omitzero"`
}

// SpotInstanceJobList is a list of SpotInstanceJobs.
//
// +kubebuilder:object:root=true
type SpotInstanceJobList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard list metadata.
	metav1.ListMeta `json:"metadata,omitzero"`

	// items are the SpotInstanceJobs.
	// +required
	Items []SpotInstanceJob `json:"items"`
}

// StatusConditions gives access to the conditions in the status.
func (j *SpotInstanceJob) StatusConditions() *[]metav1.Condition { return &j.Status.Conditions }

// HasOnePod says whether a replica is one pod. Others are left to the Job controller: there is no checkpoint of several
// processes that talk to one another.
func (j *SpotInstanceJob) HasOnePod() bool {
	spec := &j.Spec.JobTemplate.Spec
	return (spec.Parallelism == nil || *spec.Parallelism == 1) && (spec.Completions == nil || *spec.Completions == 1)
}

// SpotInstanceJobSpec says what to run, how many times, and how it is kept alive.
type SpotInstanceJobSpec struct {
	// replicas is the number of Jobs that run at the same time, each for itself, 1 to 16. Default 2.
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=1,displayName="Replicas",xDescriptors="urn:alm:descriptor:com.tectonic.ui:podCount"
	Replicas *int32 `json:"replicas,omitempty"`

	// jobTemplate is the Job that each replica runs. Names, images, commands and arguments of its containers cannot be
	// changed, because a checkpoint of the old processes cannot be continued in new ones; other changes count when a
	// replica is started again. restartPolicy must be Never or OnFailure; selectors are set by Kubernetes.
	// +required
	// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.template.spec) || !has(oldSelf.spec) || !has(oldSelf.spec.template.spec) || self.spec.template.spec.containers.map(c, c.name) == oldSelf.spec.template.spec.containers.map(c, c.name)",fieldPath=".spec.template.spec.containers",message="spec.jobTemplate.spec.template.spec.containers: their names are immutable, since checkpoints of the old ones cannot be continued: create another SpotInstanceJob"
	// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.template.spec) || !has(oldSelf.spec) || !has(oldSelf.spec.template.spec) || self.spec.template.spec.containers.map(c, has(c.image) ? c.image : '') == oldSelf.spec.template.spec.containers.map(c, has(c.image) ? c.image : '')",fieldPath=".spec.template.spec.containers",message="spec.jobTemplate.spec.template.spec.containers: their images are immutable, since checkpoints of the old ones cannot be continued: create another SpotInstanceJob"
	// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.template.spec) || !has(oldSelf.spec) || !has(oldSelf.spec.template.spec) || self.spec.template.spec.containers.map(c, has(c.command), c.command) == oldSelf.spec.template.spec.containers.map(c, has(c.command), c.command)",fieldPath=".spec.template.spec.containers",message="spec.jobTemplate.spec.template.spec.containers: their commands are immutable, since checkpoints of the old ones cannot be continued: create another SpotInstanceJob"
	// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.template.spec) || !has(oldSelf.spec) || !has(oldSelf.spec.template.spec) || self.spec.template.spec.containers.map(c, has(c.args), c.args) == oldSelf.spec.template.spec.containers.map(c, has(c.args), c.args)",fieldPath=".spec.template.spec.containers",message="spec.jobTemplate.spec.template.spec.containers: their arguments are immutable, since checkpoints of the old ones cannot be continued: create another SpotInstanceJob"
	// +kubebuilder:validation:XValidation:rule="has(self.spec) && has(self.spec.template.spec)",message="spec.jobTemplate.spec.template.spec: is required: describe the pod, with at least one container"
	// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.template.spec) || (has(self.spec.template.spec.restartPolicy) && self.spec.template.spec.restartPolicy in ['Never', 'OnFailure'])",fieldPath=".spec.template.spec.restartPolicy",message="spec.jobTemplate.spec.template.spec.restartPolicy: must be Never or OnFailure for a Job: set it to Never, so that a failed container is replaced by a pod that starts from the checkpoint"
	// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.template.spec) || self.spec.template.spec.containers.size() > 0",fieldPath=".spec.template.spec.containers",message="spec.jobTemplate.spec.template.spec.containers: is empty: add the container to run"
	// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !(has(self.spec.selector) || has(self.spec.manualSelector))",fieldPath=".spec.selector",message="spec.jobTemplate.spec.selector: and manualSelector cannot be set, since every replica needs a selector of its own: remove both"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=2,displayName="Job to run"
	JobTemplate batchv1.JobTemplateSpec `json:"jobTemplate,omitzero"`

	// checkpointConfig says when checkpoints are taken and where they are kept. Default: none are taken, and a lost
	// replica starts from nothing.
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=5,displayName="Checkpoints"
	CheckpointConfig *CheckpointConfig `json:"checkpointConfig,omitempty"`

	// spotInstanceVMRef names the SpotInstanceVM that creates instances when a replica finds no room. Default:
	// none are created, and a replica waits for room.
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=3,displayName="Instances to create"
	SpotInstanceVMRef *SpotInstanceVMReference `json:"spotInstanceVMRef,omitempty"`

	// gcpCredentialsSecretRef names the Secret whose key credentials.json holds the service account key with which
	// instances are created and checkpointStorage is written. Default: the operator's own identity, where an annotation
	// of the namespace allows this use of it.
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=9,displayName="Google Cloud credentials",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	GCPCredentialsSecretRef *SecretReference `json:"gcpCredentialsSecretRef,omitempty"`
}

// CheckpointConfig says when checkpoints are taken and where they are kept.
type CheckpointConfig struct {
	// checkpointImageRepo is the repository, with its registry and without a tag, to which checkpoint images are
	// pushed, for example registry.example.com/team/checkpoints.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+$')",messageExpression="\"spec.checkpointConfig.checkpointImageRepo: '\" + self + \"' is not registry/repository: write for example registry.example.com/team/checkpoints, in lower case and without a tag\""
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=6,displayName="Repository of the checkpoint images",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:text","urn:alm:descriptor:com.tectonic.ui:fieldGroup:checkpointConfig"}
	CheckpointImageRepo string `json:"checkpointImageRepo,omitempty"`

	// checkpointInterval is the time between two checkpoints, 1m to 168h. Default 30m.
	// +kubebuilder:default="30m0s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('168h')",message="spec.checkpointConfig.checkpointInterval: is less than 1m or more than 168h: choose a time between, so that the job neither only saves nor never"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=7,displayName="Time between checkpoints",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:text","urn:alm:descriptor:com.tectonic.ui:fieldGroup:checkpointConfig"}
	CheckpointInterval metav1.Duration `json:"checkpointInterval,omitzero"`

	// retention is the number of newest checkpoints of each replica to keep, 1 to 100. Default 3.
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=8,displayName="Checkpoints to keep",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:number","urn:alm:descriptor:com.tectonic.ui:fieldGroup:checkpointConfig"}
	Retention int32 `json:"retention,omitempty"`

	// checkpointRepoCredentialRef names the Secret of type kubernetes.io/dockerconfigjson with which images are pushed
	// and pulled. Default: none.
	CheckpointRepoCredentialRef *SecretReference `json:"checkpointRepoCredentialRef,omitempty"`

	// checkpointStorage keeps, beside the images, what the training itself saves. Default: none.
	CheckpointStorage *CheckpointStorage `json:"checkpointStorage,omitempty"`
}

// CheckpointStorage is a bucket for what the training itself saves.
type CheckpointStorage struct {
	// type of storage: gcs (the default), s3 or azure.
	// +kubebuilder:default=gcs
	Type StorageType `json:"type,omitempty"`

	// bucket is the name of the bucket or, for azure, of the container.
	// +required
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=222
	// +kubebuilder:validation:Pattern=`^[a-z0-9][a-z0-9._-]*[a-z0-9]$`
	Bucket string `json:"bucket,omitempty"`

	// pathPrefix is put in front of the names of all objects, for example experiments/bert.
	// +kubebuilder:validation:MaxLength=512
	PathPrefix string `json:"pathPrefix,omitempty"`
}

// StorageType is a kind of object storage.
// +kubebuilder:validation:Enum=gcs;s3;azure
type StorageType string

// The storage types.
const (
	StorageGCS   StorageType = "gcs"
	StorageS3    StorageType = "s3"
	StorageAzure StorageType = "azure"
)

// SpotInstanceVMReference names a SpotInstanceVM.
type SpotInstanceVMReference struct {
	// name of a SpotInstanceVM in the namespace of the job.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=4,displayName="Spot instance VM",xDescriptors={"urn:alm:descriptor:io.kubernetes:training.training.dcnlab.com:v1alpha1:SpotInstanceVM","urn:alm:descriptor:com.tectonic.ui:fieldGroup:spotInstanceVMRef"}
	Name string `json:"name,omitempty"`
}

// SecretReference names a Secret.
type SecretReference struct {
	// name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`

	// namespace of the Secret. Default: the namespace of the object that refers to it. No other is allowed, since who
	// may create this object need not be allowed to read Secrets elsewhere: the operator then sets Ready to False with
	// reason SecretNotFound.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace,omitempty"`
}

// IsElsewhere says whether the reference is to a Secret that lies in another namespace than the object that refers to it.
func (r *SecretReference) IsElsewhere(namespace string) bool {
	return r.Namespace != "" && r.Namespace != namespace
}

// SpotInstanceJobStatus is what the operator observed.
type SpotInstanceJobStatus struct {
	// observedGeneration is the metadata.generation that this status speaks of.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// phase of the job: Pending, Provisioning (a replica waits for an instance), Running, Recovering (a lost replica is
	// being started again), Succeeded or Failed.
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=1,displayName="Phase",xDescriptors="urn:alm:descriptor:io.kubernetes.phase"
	Phase JobPhase `json:"phase,omitempty"`

	// conditions are Ready, CapacityAvailable, CheckpointAgentAvailable, Complete and Failed, each with a reason and a
	// message.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=7,displayName="Conditions",xDescriptors="urn:alm:descriptor:io.kubernetes.conditions"
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// activeReplicas is the number of replicas that run.
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=2,displayName="Replicas that run",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	ActiveReplicas int32 `json:"activeReplicas"`

	// preemptionCount is the number of replicas lost to preemption so far.
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=3,displayName="Preemptions",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	PreemptionCount int32 `json:"preemptionCount,omitempty"`

	// lastCheckpointTime is when the newest checkpoint of any replica was complete.
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=4,displayName="Last checkpoint",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	LastCheckpointTime *metav1.Time `json:"lastCheckpointTime,omitempty"`

	// lastCheckpointImage is the image of the newest checkpoint of any replica.
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=5,displayName="Image of the last checkpoint",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	LastCheckpointImage string `json:"lastCheckpointImage,omitempty"`

	// startTime is when the first replica ran.
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// completionTime is when the job Succeeded or Failed.
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`

	// jobStatuses are the replicas.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=6,displayName="Replicas"
	JobStatuses []ReplicaStatus `json:"jobStatuses,omitempty"`
}

// JobPhase is the phase of a SpotInstanceJob.
// +kubebuilder:validation:Enum=Pending;Provisioning;Running;Recovering;Succeeded;Failed
type JobPhase string

// The phases of a SpotInstanceJob.
const (
	JobPending      JobPhase = "Pending"
	JobProvisioning JobPhase = "Provisioning"
	JobRunning      JobPhase = "Running"
	JobRecovering   JobPhase = "Recovering"
	JobSucceeded    JobPhase = "Succeeded"
	JobFailed       JobPhase = "Failed"
)

// ReplicaStatus is one replica of a SpotInstanceJob.
type ReplicaStatus struct {
	// name of the replica's Job.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`

	// nodeName is the node on which the replica runs.
	NodeName string `json:"nodeName,omitempty"`

	// phase of the replica: Pending, Running, Preempted (its node is being taken back), Succeeded or Failed.
	Phase ReplicaPhase `json:"phase,omitempty"`

	// restartCount is the number of times that the replica was started again.
	RestartCount int32 `json:"restartCount,omitempty"`

	// lastCheckpointTime is when the replica's newest checkpoint was complete.
	LastCheckpointTime *metav1.Time `json:"lastCheckpointTime,omitempty"`

	// lastCheckpointImage is the image of the replica's newest checkpoint.
	LastCheckpointImage string `json:"lastCheckpointImage,omitempty"`
}

// ReplicaPhase is the phase of one replica.
// +kubebuilder:validation:Enum=Pending;Running;Preempted;Succeeded;Failed
type ReplicaPhase string

// The phases of a replica.
const (
	ReplicaPending   ReplicaPhase = "Pending"
	ReplicaRunning   ReplicaPhase = "Running"
	ReplicaPreempted ReplicaPhase = "Preempted"
	ReplicaSucceeded ReplicaPhase = "Succeeded"
	ReplicaFailed    ReplicaPhase = "Failed"
)
