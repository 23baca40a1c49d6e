package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TrainingJob trains one model on one data set with a fixed or elastic number of worker replicas that form one
// distributed process group. The operator creates the workers, follows their progress, keeps their checkpoints and
// restarts them from the newest checkpoint when they fail.
//
// The name is at most 50 characters and a DNS label that starts with a letter, because it prefixes the names of
// Services and of pods.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.numWorkers,statuspath=.status.workers.total,selectorpath=.status.selector
// +kubebuilder:resource:path=trainingjobs,singular=trainingjob,shortName=tj;tjob,categories=ml
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`,description="State of the job"
// +kubebuilder:printcolumn:name="Progress",type=string,JSONPath=`.status.progress`,description="Share of the training that is done"
// +kubebuilder:printcolumn:name="Epoch",type=integer,JSONPath=`.status.currentEpoch`,description="Epoch in progress, from 1"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Epochs",type=integer,priority=1,JSONPath=`.status.totalEpochs`,description="Epochs to train in all"
// +kubebuilder:printcolumn:name="Loss",type=number,priority=1,JSONPath=`.status.metrics.loss`,description="Training loss last reported"
// +kubebuilder:printcolumn:name="Workers",type=integer,priority=1,JSONPath=`.status.workers.active`,description="Workers that run now"
// +kubebuilder:printcolumn:name="Restarts",type=integer,priority=1,JSONPath=`.status.restartCount`,description="Times that the whole job was started again"
// +kubebuilder:printcolumn:name="Cost",type=string,priority=1,JSONPath=`.status.cost.total`,description="What the job has cost so far, where nodes carry prices"
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.reason`,description="Why the job is in its state"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 50 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",fieldPath=".spec",message="metadata.name: must be at most 50 characters of a-z, 0-9 and '-', starting with a letter and ending with a letter or digit, because it prefixes the names of Services and pods: choose a shorter or simpler name"
// +operator-sdk:csv:customresourcedefinitions:displayName="Training Job",order=1,resources={{Job,v1},{Pod,v1},{Service,v1},{ConfigMap,v1},{ServiceAccount,v1},{PersistentVolumeClaim,v1},{Event,v1}}
type TrainingJob struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec says what to train and how. While the job runs only suspend, ttlSecondsAfterFinished, cleanupPolicy and, for elastic
	// jobs, numWorkers can be changed; while it is suspended or queued nearly all.
	// +required
	Spec TrainingJobSpec `json:"spec,omitzero"`

	// status is what the operator observed. It is written by the operator only.
	// +kubebuilder:default={state: "Pending", phase: "Pending"}
	Status TrainingJobStatus `json:"status,omitzero"`
}

// TrainingJobList is a list of TrainingJobs.
//
// +kubebuilder:object:root=true
type TrainingJobList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard list metadata.
	metav1.ListMeta `json:"metadata,omitzero"`

	// items are the TrainingJobs.
	// +required
	Items []TrainingJob `json:"items"`
}
