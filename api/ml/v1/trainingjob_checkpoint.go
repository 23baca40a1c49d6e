package v1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Checkpoint says where and when the training's state is saved, and from what to resume.
//
// +kubebuilder:validation:XValidation:rule="!has(self.resumeFrom) || !self.resumeFrom.startsWith('/') || !has(self.storage) || !has(self.storage.type) || self.storage.type in ['pvc', 'nfs']",fieldPath=".resumeFrom",messageExpression="'spec.checkpoint.resumeFrom: is a path in a volume, but spec.checkpoint.storage.type is ' + self.storage.type + ': write a URI such as s3://bucket/path, or the name of a TrainingJob'"
// +kubebuilder:validation:XValidation:rule="!has(self.resumeFrom) || !self.resumeFrom.startsWith('azblob://') || self.resumeFrom.contains('?account=') || (has(self.storage) && has(self.storage.azureAccount))",fieldPath=".resumeFrom",message="spec.checkpoint.resumeFrom: names no storage account: write azblob://container/path?account=A"
// +kubebuilder:validation:XValidation:rule="!has(self.resumeSecretRef) || (has(self.resumeFrom) && self.resumeFrom != 'latest' && !self.resumeFrom.startsWith('/') && !self.resumeFrom.startsWith('pvc://'))",fieldPath=".resumeSecretRef",message="spec.checkpoint.resumeSecretRef: has no use, because resumeFrom names no object store: remove it, or set resumeFrom to a URI such as s3://bucket/path or to the name of a TrainingJob"
type Checkpoint struct {
	// enabled saves checkpoints. Default true.
	// +kubebuilder:default=true
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=19,displayName="Save checkpoints",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:booleanSwitch","urn:alm:descriptor:com.tectonic.ui:fieldGroup:checkpoint"}
	Enabled *bool `json:"enabled,omitempty"`

	// frequency saves a checkpoint every this many epochs, at least 1. Workers see it as CHECKPOINT_FREQUENCY.
	// Default 1.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=20,displayName="Every so many epochs",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:number","urn:alm:descriptor:com.tectonic.ui:fieldGroup:checkpoint"}
	Frequency int32 `json:"frequency,omitempty"`

	// interval saves a checkpoint when this much time has passed since the last one, 10s to 168h, in hours, minutes and
	// seconds, for example 15m or 1h30m. Workers see it in seconds as CHECKPOINT_INTERVAL. Default: by epochs only.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:Format=duration
	// +kubebuilder:validation:XValidation:rule="self >= duration('10s') && self <= duration('168h')",message="spec.checkpoint.interval: is less than 10s or more than 168h: choose a time between, so that training neither only saves nor never"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=21,displayName="Every so much time",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:text","urn:alm:descriptor:com.tectonic.ui:fieldGroup:checkpoint"}
	Interval *metav1.Duration `json:"interval,omitempty"`

	// retention is the number of newest checkpoints to keep, 1 to 1000. The newest valid one is never deleted.
	// Default 3.
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=22,displayName="Checkpoints to keep",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:number","urn:alm:descriptor:com.tectonic.ui:fieldGroup:checkpoint"}
	Retention int32 `json:"retention,omitempty"`

	// resumeFrom is the checkpoint to start from when the job has none of its own: latest, for the newest one of a
	// job of this name in the same storage, if there is any; the name of another TrainingJob in the namespace, for the
	// newest one of that job, wherever it is stored; an absolute path in the volume, for storage of type pvc or nfs; or a
	// URI: pvc://claim/path, s3://bucket/path?region=R&endpoint=U, gs://bucket/path, azblob://container/path?account=A.
	// Region, endpoint and account may be left out where they are those of storage. A path may name one checkpoint or a
	// directory whose newest valid checkpoint is meant. When there is none the job fails with the reason
	// CheckpointNotFound instead of starting from nothing; with latest it starts from nothing. As long as there is no
	// TrainingJob of the name with a checkpoint, or the storage does not answer, the job waits.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.matches('^(latest|[a-z]([-a-z0-9]{0,48}[a-z0-9])?|/[^ ]+|(pvc|s3|gs|azblob)://[^/ ?]+(/[^ ]*)?([?][^ ]*)?)$')",messageExpression="\"spec.checkpoint.resumeFrom: '\" + self + \"' is none of latest, the name of a TrainingJob, an absolute path, or a URI that starts with pvc://, s3://, gs:// or azblob://: write it as one of these\""
	// +kubebuilder:validation:XValidation:rule="!self.contains('/../') && !self.endsWith('/..')",message="spec.checkpoint.resumeFrom: must not contain '..': name the directory itself"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^(s3|gs|azblob)://[^?]*[?]') || self.matches('^(s3://[^?]*[?](region|endpoint)=[^&]+(&(region|endpoint)=[^&]+)?|azblob://[^?]*[?]account=[a-z0-9]{3,24})$')",message="spec.checkpoint.resumeFrom: has other settings after the '?' than its kind of storage has: write s3://bucket/path?region=R&endpoint=U, gs://bucket/path or azblob://container/path?account=A"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=23,displayName="Resume from",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:text","urn:alm:descriptor:com.tectonic.ui:fieldGroup:checkpoint"}
	ResumeFrom string `json:"resumeFrom,omitempty"`

	// resumeSecretRef names the Secret in the job's namespace with the credentials for the storage that resumeFrom names,
	// with the keys that storage.secretRef has. Default: storage.secretRef when both are storage of the same kind, that of
	// the other TrainingJob when resumeFrom names one, and else the workload identity of the workers' ServiceAccount.
	ResumeSecretRef *SecretReference `json:"resumeSecretRef,omitempty"`

	// storage says where checkpoints are kept. Default: a PersistentVolumeClaim of the job.
	// +kubebuilder:default={type: "pvc"}
	Storage CheckpointStorage `json:"storage,omitzero"`
}

// CheckpointStorage says where checkpoints are kept. Only the fields of its type may be set.
//
// +kubebuilder:validation:XValidation:rule="self.type != 's3' || has(self.s3Bucket)",fieldPath=".s3Bucket",message="spec.checkpoint.storage.s3Bucket: is required when type is s3: name the bucket"
// +kubebuilder:validation:XValidation:rule="self.type == 's3' || !(has(self.s3Bucket) || has(self.s3Region) || has(self.s3Endpoint))",fieldPath=".type",messageExpression="'spec.checkpoint.storage.type: is ' + self.type + ' but an s3 field is set: set type to s3 or remove s3Bucket, s3Region and s3Endpoint'"
// +kubebuilder:validation:XValidation:rule="self.type != 'gcs' || has(self.gcsBucket)",fieldPath=".gcsBucket",message="spec.checkpoint.storage.gcsBucket: is required when type is gcs: name the bucket"
// +kubebuilder:validation:XValidation:rule="self.type == 'gcs' || !has(self.gcsBucket)",fieldPath=".type",messageExpression="'spec.checkpoint.storage.type: is ' + self.type + ' but gcsBucket is set: set type to gcs or remove gcsBucket'"
// +kubebuilder:validation:XValidation:rule="self.type != 'azure' || (has(self.azureContainer) && has(self.azureAccount))",fieldPath=".azureContainer",message="spec.checkpoint.storage.azureContainer: and azureAccount are required when type is azure: name both"
// +kubebuilder:validation:XValidation:rule="self.type == 'azure' || !(has(self.azureContainer) || has(self.azureAccount))",fieldPath=".type",messageExpression="'spec.checkpoint.storage.type: is ' + self.type + ' but an azure field is set: set type to azure or remove azureContainer and azureAccount'"
// +kubebuilder:validation:XValidation:rule="self.type != 'nfs' || (has(self.nfsServer) && has(self.nfsPath))",fieldPath=".nfsServer",message="spec.checkpoint.storage.nfsServer: and nfsPath are required when type is nfs: name both"
// +kubebuilder:validation:XValidation:rule="self.type == 'nfs' || !(has(self.nfsServer) || has(self.nfsPath))",fieldPath=".type",messageExpression="'spec.checkpoint.storage.type: is ' + self.type + ' but an nfs field is set: set type to nfs or remove nfsServer and nfsPath'"
// +kubebuilder:validation:XValidation:rule="self.type == 'pvc' || !(has(self.claimName) || has(self.size) || has(self.storageClassName) || has(self.accessModes) || has(self.retentionPolicy))",fieldPath=".type",messageExpression="'spec.checkpoint.storage.type: is ' + self.type + ' but a field of a claim is set: set type to pvc or remove claimName, size, storageClassName, accessModes and retentionPolicy'"
// +kubebuilder:validation:XValidation:rule="!has(self.claimName) || !(has(self.size) || has(self.storageClassName) || has(self.accessModes) || has(self.retentionPolicy))",fieldPath=".claimName",message="spec.checkpoint.storage.claimName: names a claim that exists, which is used as it is: remove size, storageClassName, accessModes and retentionPolicy, or remove claimName so that a claim is created"
// +kubebuilder:validation:XValidation:rule="!has(self.secretRef) || self.type in ['s3', 'gcs', 'azure']",fieldPath=".secretRef",messageExpression="'spec.checkpoint.storage.secretRef: has no use with type ' + self.type + ': remove it, or set type to s3, gcs or azure'"
// +kubebuilder:validation:XValidation:rule="!has(self.prefix) || self.type in ['s3', 'gcs', 'azure']",fieldPath=".prefix",messageExpression="'spec.checkpoint.storage.prefix: has no use with type ' + self.type + ': remove it, or set type to s3, gcs or azure'"
// +kubebuilder:validation:XValidation:rule="!has(self.s3Endpoint) || !self.s3Endpoint.matches('^[^/]*//[^/?#]*@')",fieldPath=".s3Endpoint",message="spec.checkpoint.storage.s3Endpoint: must not hold a user or password, which everyone who may see the job would read: use a Secret, and name it in secretRef"
type CheckpointStorage struct {
	// type of storage: pvc (the default), s3, gcs, azure or nfs.
	// +kubebuilder:default=pvc
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=24,displayName="Storage",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:select:pvc","urn:alm:descriptor:com.tectonic.ui:select:s3","urn:alm:descriptor:com.tectonic.ui:select:gcs","urn:alm:descriptor:com.tectonic.ui:select:azure","urn:alm:descriptor:com.tectonic.ui:select:nfs","urn:alm:descriptor:com.tectonic.ui:fieldGroup:checkpoint"}
	Type StorageType `json:"type,omitempty"`

	// claimName is a PersistentVolumeClaim in the job's namespace to use. Default: the operator creates
	// <job>-checkpoints.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=25,displayName="Claim to use",xDescriptors={"urn:alm:descriptor:io.kubernetes:PersistentVolumeClaim","urn:alm:descriptor:com.tectonic.ui:fieldGroup:checkpoint"}
	ClaimName string `json:"claimName,omitempty"`

	// size of the claim that is created, for example 50Gi. Default 10Gi.
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).isGreaterThan(quantity('0'))",message="spec.checkpoint.storage.size: must be above 0: write for example 10Gi"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=26,displayName="Size of the claim to create",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:text","urn:alm:descriptor:com.tectonic.ui:fieldGroup:checkpoint"}
	Size *resource.Quantity `json:"size,omitempty"`

	// storageClassName of the claim that is created. Default: the cluster's default StorageClass.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$`
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=27,displayName="Storage class of the claim to create",xDescriptors={"urn:alm:descriptor:io.kubernetes:StorageClass","urn:alm:descriptor:com.tectonic.ui:fieldGroup:checkpoint"}
	StorageClassName *string `json:"storageClassName,omitempty"`

	// accessModes of the claim that is created. Default ReadWriteOnce, with which all workers must run on one node;
	// choose ReadWriteMany for several nodes.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:Enum=ReadWriteOnce;ReadWriteMany;ReadWriteOncePod
	AccessModes []corev1.PersistentVolumeAccessMode `json:"accessModes,omitempty"`

	// retentionPolicy says what happens to the claim that is created when the TrainingJob is deleted: Retain, the
	// default, keeps it with its checkpoints; Delete deletes it.
	// +kubebuilder:validation:Enum=Retain;Delete
	RetentionPolicy ClaimRetentionPolicy `json:"retentionPolicy,omitempty"`

	// s3Bucket is the name of the bucket for type s3.
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^[a-z0-9][a-z0-9.-]{1,253}[a-z0-9]$`
	S3Bucket string `json:"s3Bucket,omitempty"`

	// s3Region is the region of the bucket for type s3. Default: that of the credentials.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	S3Region string `json:"s3Region,omitempty"`

	// s3Endpoint is the URL of an S3-compatible server for type s3. Default: Amazon S3.
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^https?://\S+$`
	S3Endpoint string `json:"s3Endpoint,omitempty"`

	// gcsBucket is the name of the bucket for type gcs.
	// +kubebuilder:validation:MaxLength=222
	// +kubebuilder:validation:Pattern=`^[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]$`
	GCSBucket string `json:"gcsBucket,omitempty"`

	// azureAccount is the storage account for type azure.
	// +kubebuilder:validation:MaxLength=24
	// +kubebuilder:validation:Pattern=`^[a-z0-9]{3,24}$`
	AzureAccount string `json:"azureAccount,omitempty"`

	// azureContainer is the blob container for type azure.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]{1,61})[a-z0-9]$`
	AzureContainer string `json:"azureContainer,omitempty"`

	// nfsServer is the host name or address of the server for type nfs.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	NFSServer string `json:"nfsServer,omitempty"`

	// nfsPath is the exported directory for type nfs.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^/\S*$`
	NFSPath string `json:"nfsPath,omitempty"`

	// prefix is put in front of the names of all objects for types s3, gcs and azure, for example team-a/.
	// +kubebuilder:validation:MaxLength=512
	Prefix string `json:"prefix,omitempty"`

	// secretRef names the Secret in the job's namespace with the credentials for types s3, gcs and azure. Its keys are
	// AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and AWS_SESSION_TOKEN where one is needed, for s3; key.json for gcs;
	// AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN for azure. As long as it is missing the training runs, and the
	// condition CheckpointReady is False. Default: the workload identity of the workers' ServiceAccount.
	SecretRef *SecretReference `json:"secretRef,omitempty"`
}

// SecretReference names a Secret in the namespace of the job.
type SecretReference struct {
	// name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`
}

// StorageType is a kind of checkpoint storage.
// +kubebuilder:validation:Enum=pvc;s3;gcs;azure;nfs
type StorageType string

// The storage types.
const (
	StoragePVC   StorageType = "pvc"
	StorageS3    StorageType = "s3"
	StorageGCS   StorageType = "gcs"
	StorageAzure StorageType = "azure"
	StorageNFS   StorageType = "nfs"
)

// ClaimRetentionPolicy says what happens to a created claim when its job is deleted.
type ClaimRetentionPolicy string

// The retention policies of a claim.
const (
	// ClaimRetain keeps the claim.
	ClaimRetain ClaimRetentionPolicy = "Retain"
	// ClaimDelete deletes the claim with the job.
	ClaimDelete ClaimRetentionPolicy = "Delete"
)
