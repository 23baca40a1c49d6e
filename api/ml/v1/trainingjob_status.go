package v1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dcnlab/spot-training-operator/api/podtemplate"
)

// TrainingJobStatus is what the operator observed.
type TrainingJobStatus struct {
	// observedGeneration is the metadata.generation that this status speaks of.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// state of the job: Pending (not yet admitted or its settings cannot be met), Initializing (its objects exist,
	// not all workers run), Running, Restarting, Suspended, Completed or Failed.
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=1,displayName="State",xDescriptors="urn:alm:descriptor:io.kubernetes.phase"
	State State `json:"state,omitempty"`

	// uid is the metadata.uid of the job that this status speaks of. Where it is not the job's own, the status came with the job from
	// a backup: a job that had not ended then starts again from its newest checkpoint.
	UID types.UID `json:"uid,omitempty"`

	// restored says from which job's backup this job was restored; absent when it was not.
	Restored *RestoredStatus `json:"restored,omitempty"`

	// phase is the state in four words: Pending, Running, Succeeded, Failed.
	Phase Phase `json:"phase,omitempty"`

	// reason says in one word why the job is in its state.
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=2,displayName="Reason",xDescriptors="urn:alm:descriptor:io.kubernetes.phase:reason"
	Reason string `json:"reason,omitempty"`

	// conditions are Admitted, Initialized, Running, Suspended, Restarting, Complete, Failed, Stopping, CheckpointReady and,
	// with spec.scheduling.spot, SpotCapacity, and, with spec.networking.preflight, NetworkReady, each with a reason and a
	// message. ChildrenApplied is False while an object of the job cannot be written. Restored is True in a job that came with its
	// status from a backup.
	// +listType=map
	// +listMapKey=type
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=18,displayName="Conditions",xDescriptors="urn:alm:descriptor:io.kubernetes.conditions"
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// progress is the share of the training that is done, for example 45%.
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=3,displayName="Progress",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	Progress string `json:"progress,omitempty"`

	// currentEpoch is the epoch in progress, from 1.
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=4,displayName="Epoch",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	CurrentEpoch int32 `json:"currentEpoch,omitempty"`

	// totalEpochs is the number of epochs to train in all.
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=5,displayName="Epochs in all",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	TotalEpochs int32 `json:"totalEpochs,omitempty"`

	// metrics are the figures last reported by replica 0, by name, for example loss and accuracy, rounded to six
	// significant digits. At most 64.
	// +kubebuilder:validation:MaxProperties=64
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=6,displayName="Metrics"
	Metrics map[string]float64 `json:"metrics,omitempty"`

	// metricsTime is when metrics were last read.
	MetricsTime *metav1.Time `json:"metricsTime,omitempty"`

	// workers counts the worker replicas.
	Workers *WorkersStatus `json:"workers,omitempty"`

	// checkpoint is the newest checkpoint, and the state of others.
	Checkpoint *CheckpointStatus `json:"checkpoint,omitempty"`

	// resumeSource is where the TrainingJob that spec.checkpoint.resumeFrom names keeps its checkpoints. It is looked up
	// once, so that this job can start again although the other was deleted.
	ResumeSource *ResumeSource `json:"resumeSource,omitempty"`

	// resources are what the workers hold together.
	Resources *ResourcesStatus `json:"resources,omitempty"`

	// defaultResources are the requests and limits that the installation gives each worker (--default-worker-requests,
	// --default-worker-limits), because spec.resources does not name them. They are set again when the workers are started.
	DefaultResources *corev1.ResourceRequirements `json:"defaultResources,omitempty"`

	// startTime is when all workers first ran.
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=15,displayName="Started",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// completionTime is when the job was Completed or Failed.
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=16,displayName="Ended",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`

	// duration is the time from startTime to completionTime, for example 1h5m0s.
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=17,displayName="Duration",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	Duration string `json:"duration,omitempty"`

	// failureReason says in one line what went wrong last: which worker, with which exit code or signal, and the line of its last output that
	// says what failed.
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=12,displayName="What went wrong last",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	FailureReason string `json:"failureReason,omitempty"`

	// lastFailure is what failureReason says, in parts for programs, with the last output of the worker.
	LastFailure *FailureStatus `json:"lastFailure,omitempty"`

	// earlierFailures are the three failures and losses before lastFailure, the newest first. The pods of those attempts are gone.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=3
	EarlierFailures []FailureStatus `json:"earlierFailures,omitempty"`

	// unsettledFailures are failures that may still turn out to be losses of a node, which do not count against backoffLimit. Each is
	// settled within a minute. At most 32.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	UnsettledFailures []UnsettledFailure `json:"unsettledFailures,omitempty"`

	// best is the best value so far of the metric that successPolicy watches; absent without a successPolicy.
	Best *BestStatus `json:"best,omitempty"`

	// restartCount is the number of times that the whole job was started again, for whatever reason. Workers of an
	// elastic job that come, go or are replaced while the others train on are no restart.
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=13,displayName="Restarts",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	RestartCount int32 `json:"restartCount"`

	// disruptionCount is how many of these restarts were due to preemption, eviction or the loss of a node. They do
	// not count against backoffLimit.
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=14,displayName="Restarts for lost pods",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	DisruptionCount int32 `json:"disruptionCount,omitempty"`

	// workerFailures is how many single workers of an elastic job failed and were replaced while the others went on.
	// They count against backoffLimit as restarts do; workers lost to preemption, eviction or their node do not.
	WorkerFailures int32 `json:"workerFailures,omitempty"`

	// startCount is how often the workers were started: at first, after each restart, and whenever the job was resumed. Each
	// start has its number, by which the checkpoint agents know which of them is the latest.
	StartCount int32 `json:"startCount,omitempty"`

	// lastRestartTime is when the last restart was decided.
	LastRestartTime *metav1.Time `json:"lastRestartTime,omitempty"`

	// admission is the job's place in the AIJobQueue that spec.scheduling.queueName names; absent without one.
	Admission *AdmissionStatus `json:"admission,omitempty"`

	// preemption is what the job does about nodes with workers that their provider takes back, or did the last time.
	Preemption *PreemptionStatus `json:"preemption,omitempty"`

	// source is the code of spec.source that the job was started with first. Later starts use the same, or the job fails with SourceChanged.
	Source *podtemplate.SourceStatus `json:"source,omitempty"`

	// cost is what the job has cost so far, where the nodes carry prices.
	Cost *CostStatus `json:"cost,omitempty"`

	// selector is the label selector of the worker pods, for the scale subresource.
	Selector string `json:"selector,omitempty"`
}

// State of a TrainingJob.
// +kubebuilder:validation:Enum=Pending;Initializing;Running;Restarting;Suspended;Completed;Failed
type State string

// The states.
const (
	StatePending      State = "Pending"
	StateInitializing State = "Initializing"
	StateRunning      State = "Running"
	StateRestarting   State = "Restarting"
	StateSuspended    State = "Suspended"
	StateCompleted    State = "Completed"
	StateFailed       State = "Failed"
)

// Phase is the state of a TrainingJob in four words.
// +kubebuilder:validation:Enum=Pending;Running;Succeeded;Failed
type Phase string

// The phases.
const (
	PhasePending   Phase = "Pending"
	PhaseRunning   Phase = "Running"
	PhaseSucceeded Phase = "Succeeded"
	PhaseFailed    Phase = "Failed"
)

// RestoredStatus is the job that a job was restored from, which was backed up with its status.
type RestoredStatus struct {
	// uid is the metadata.uid under which the checkpoints lie that the job goes on from while it has none of its own.
	// +required
	UID types.UID `json:"uid"`

	// time is when the operator found the status of the backup.
	// +required
	Time metav1.Time `json:"time,omitzero"`
}

// WorkersStatus counts the worker replicas.
type WorkersStatus struct {
	// total is the number of replicas that should exist.
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=8,displayName="Workers that should run",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	Total int32 `json:"total"`

	// active is the number of replicas that run.
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=7,displayName="Workers that run",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	Active int32 `json:"active"`

	// succeeded is the number of replicas that ended with exit code 0.
	Succeeded int32 `json:"succeeded"`

	// failed is the number of replicas of the present attempt that failed.
	Failed int32 `json:"failed"`
}

// CheckpointStatus is the newest checkpoint of a job.
type CheckpointStatus struct {
	// path of the checkpoint in its storage.
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=9,displayName="Newest checkpoint",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	Path string `json:"path,omitempty"`

	// epoch that the checkpoint was taken in or after, from 1.
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=10,displayName="Epoch of the newest checkpoint",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	Epoch int32 `json:"epoch,omitempty"`

	// step is the number of optimizer steps that the checkpoint holds.
	Step int64 `json:"step,omitempty"`

	// sizeBytes is the size of the checkpoint in bytes.
	SizeBytes int64 `json:"sizeBytes,omitempty"`

	// time is when the checkpoint was made.
	Time *metav1.Time `json:"time,omitempty"`

	// claimName is the PersistentVolumeClaim that holds it, for storage type pvc.
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=11,displayName="Claim that holds it",xDescriptors="urn:alm:descriptor:io.kubernetes:PersistentVolumeClaim"
	ClaimName string `json:"claimName,omitempty"`

	// kept is the number of valid checkpoints of the job in the storage.
	Kept int32 `json:"kept,omitempty"`

	// restoredFrom is the checkpoint that the training started from: a path in the volume or a URI. It is empty when the
	// training began at the first epoch.
	RestoredFrom string `json:"restoredFrom,omitempty"`

	// restoredAttempt is the number of restarts before the training that started from restoredFrom.
	RestoredAttempt int32 `json:"restoredAttempt,omitempty"`

	// skipped are checkpoints that cannot be used, because their files are not what their manifest says; the newest
	// five at most.
	// +listType=map
	// +listMapKey=path
	// +kubebuilder:validation:MaxItems=5
	Skipped []CheckpointSkipped `json:"skipped,omitempty"`

	// request is the last checkpoint that was asked for by the annotation ml.example.com/checkpoint-now.
	Request *CheckpointRequest `json:"request,omitempty"`
}

// CheckpointSkipped is a checkpoint that cannot be used.
type CheckpointSkipped struct {
	// path of the checkpoint in its storage.
	// +required
	Path string `json:"path"`

	// message says what is wrong with it.
	Message string `json:"message,omitempty"`
}

// CheckpointRequest is a checkpoint that was asked for by the annotation ml.example.com/checkpoint-now.
type CheckpointRequest struct {
	// id is the annotation's value, or its SHA-256 when the value is longer than 128 characters or has others than
	// letters, digits and -_.:+/=@.
	// +required
	ID string `json:"id"`

	// state is Pending, Done once the checkpoint is in the storage, or Failed.
	// +required
	State CheckpointRequestState `json:"state"`

	// path of the checkpoint in its storage, once it is there.
	Path string `json:"path,omitempty"`

	// message says what the request waits for, or why it failed.
	Message string `json:"message,omitempty"`
}

// CheckpointRequestState is how far a request for a checkpoint is.
// +kubebuilder:validation:Enum=Pending;Done;Failed
type CheckpointRequestState string

// The states of a request for a checkpoint.
const (
	CheckpointRequestPending CheckpointRequestState = "Pending"
	CheckpointRequestDone    CheckpointRequestState = "Done"
	CheckpointRequestFailed  CheckpointRequestState = "Failed"
)

// ResumeSource is where another TrainingJob keeps its checkpoints.
type ResumeSource struct {
	// uri of the directory with that job's checkpoints.
	// +required
	URI string `json:"uri"`

	// secretName is the Secret with the credentials of that storage.
	SecretName string `json:"secretName,omitempty"`
}

// ResourcesStatus is what the workers hold together.
type ResourcesStatus struct {
	// workers is the number of workers.
	Workers int32 `json:"workers,omitempty"`

	// gpus is the number of GPUs of all workers.
	GPUs int32 `json:"gpus"`

	// cpu is the sum of the CPU requests.
	CPU *resource.Quantity `json:"cpu,omitempty"`

	// memory is the sum of the memory requests.
	Memory *resource.Quantity `json:"memory,omitempty"`

	// gpuUtilizationPercent is the GPU utilization last reported by replica 0, 0 to 100.
	GPUUtilizationPercent *float64 `json:"gpuUtilizationPercent,omitempty"`
}

// BestStatus is the best value so far of a metric.
type BestStatus struct {
	// metric is the name of the metric.
	Metric string `json:"metric,omitempty"`

	// value is the best that the operator read.
	Value *float64 `json:"value,omitempty"`

	// epoch that was in progress when the value was first read, from 1.
	Epoch int32 `json:"epoch,omitempty"`
}

// CostStatus is what a job has cost so far: for each worker the price of its node, times the share of the node that it
// requests, times the hours from when the kubelet took it until its end. It is written with other changes, and alone when it
// is 10 minutes old.
type CostStatus struct {
	// currency of the prices, for example USD: that of the first node with a price.
	Currency string `json:"currency,omitempty"`

	// total is the sum so far, as a decimal number.
	Total string `json:"total,omitempty"`

	// perHour is what the running workers cost per hour, as a decimal number.
	PerHour string `json:"perHour,omitempty"`

	// unpricedWorkers is the number of running workers that are not in the sum, because their node has no price or one in
	// another currency.
	UnpricedWorkers int32 `json:"unpricedWorkers,omitempty"`

	// time up to which total counts.
	Time *metav1.Time `json:"time,omitempty"`
}
