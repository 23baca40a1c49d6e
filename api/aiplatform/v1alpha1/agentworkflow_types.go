package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// AgentWorkflow runs Agents as stages that hand values to one another. Each stage runs as an AIJob, as soon as the stages
// that it depends on have Succeeded.
//
// The name is at most 63 characters and a DNS label, because it is the value of a label of its jobs.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=agentworkflows,singular=agentworkflow,shortName=awf,categories=ml
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`,description="Phase of the workflow"
// +kubebuilder:printcolumn:name="Done",type=string,JSONPath=`.status.progress`,description="Stages that have ended, of all"
// +kubebuilder:printcolumn:name="Stage",type=string,JSONPath=`.status.currentStage`,description="Stage that runs"
// +kubebuilder:printcolumn:name="Trigger",type=string,JSONPath=`.spec.trigger.type`,description="What starts the workflow"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether the operator acts on the workflow"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Run",type=integer,priority=1,JSONPath=`.status.run`,description="Number of the last start"
// +kubebuilder:printcolumn:name="Next",type=string,priority=1,JSONPath=`.status.nextStartTime`,description="Time of the next start"
// +kubebuilder:printcolumn:name="Queue",type=string,priority=1,JSONPath=`.spec.queueName`,description="Queue of the stages"
// +kubebuilder:printcolumn:name="Started",type=date,priority=1,JSONPath=`.status.startTime`,description="Time since the last start"
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why it is or is not ready"
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.message`,description="What the workflow does or waits for"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",fieldPath=".spec",message="metadata.name: must be at most 63 characters of a-z, 0-9 and '-', because it is the value of a label: choose a shorter or simpler name"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.phase) || oldSelf.status.phase != 'Running' || self.spec.stages == oldSelf.spec.stages",fieldPath=".spec.stages",message="spec.stages: cannot be changed while the workflow runs: wait for its end, or create another AgentWorkflow"
// +operator-sdk:csv:customresourcedefinitions:displayName="Agent Workflow",order=8,resources={{AIJob,v1alpha1},{Agent,v1alpha1}}
type AgentWorkflow struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec says which stages there are and what starts them. stages cannot be changed while the workflow runs.
	// +required
	Spec AgentWorkflowSpec `json:"spec,omitzero"`

	// status is what the operator observed. It is written by the operator only.
	Status AgentWorkflowStatus `json:"status,omitzero"`
}

// AgentWorkflowList is a list of AgentWorkflows.
//
// +kubebuilder:object:root=true
type AgentWorkflowList struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard list metadata.
	metav1.ListMeta `json:"metadata,omitzero"`

	// items are the AgentWorkflows.
	// +required
	Items []AgentWorkflow `json:"items"`
}

// StatusConditions gives access to the conditions in the status.
func (w *AgentWorkflow) StatusConditions() *[]metav1.Condition { return &w.Status.Conditions }

// AgentWorkflowSpec says which stages a workflow has and what starts them.
type AgentWorkflowSpec struct {
	// trigger says what starts the workflow. Default: it starts once, when it is created.
	// +kubebuilder:default={}
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=1,displayName="Trigger"
	Trigger Trigger `json:"trigger,omitzero"`

	// stages of the workflow, 1 to 32. A stage is listed after those that it depends on, so that there can be no cycle.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.all(s, !has(s.dependsOn) || s.dependsOn.all(d, self.exists(p, p.name == d)))",message="spec.stages: a stage depends on one that does not exist: correct the name in its dependsOn or add the stage"
	// +kubebuilder:validation:XValidation:rule="self.all(s, !has(s.dependsOn) || s.dependsOn.all(d, d != s.name && (!self.exists(p, p.name == d) || self.filter(p, p.name == d || p.name == s.name)[0].name == d)))",message="spec.stages: a stage depends on itself or on one that is listed after it: list every stage after those in its dependsOn, and remove a dependency if they go in a circle"
	// +kubebuilder:validation:XValidation:rule="self.all(s, !has(s.inputs) || s.inputs.all(k, !s.inputs[k].startsWith('$(stages.') || (has(s.dependsOn) && s.dependsOn.exists(d, s.inputs[k].startsWith('$(stages.' + d + '.outputs.')))))",message="spec.stages: an input refers to a stage that is not in dependsOn: add that stage to dependsOn, and write the reference as $(stages.STAGE.outputs.OUTPUT)"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=3,displayName="Stages"
	Stages []Stage `json:"stages,omitempty"`

	// inputs are values that stages refer to as $(inputs.NAME). At most 32.
	// +kubebuilder:validation:MaxProperties=32
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=4,displayName="Inputs"
	Inputs map[string]ParameterValue `json:"inputs,omitempty"`

	// queueName is the AIJobQueue that admits the stages. Default: none, and a stage starts as soon as it fits.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=5,displayName="Queue",xDescriptors="urn:alm:descriptor:io.kubernetes:aiplatform.example.com:v1alpha1:AIJobQueue"
	QueueName string `json:"queueName,omitempty"`

	// priority of the stages in their queue, 0 to 100. Default 50.
	// +kubebuilder:default=50
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=6,displayName="Priority",xDescriptors="urn:alm:descriptor:com.tectonic.ui:number"
	Priority *int32 `json:"priority,omitempty"`

	// timeoutSeconds is the time from start to end after which the workflow is stopped and Failed, 1 to
	// 3153600000 (100 years). Default: no limit.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3153600000
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=7,displayName="Time limit in seconds",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:number","urn:alm:descriptor:com.tectonic.ui:advanced"}
	TimeoutSeconds *int64 `json:"timeoutSeconds,omitempty"`
}

// Trigger says what starts a workflow.
//
// +kubebuilder:validation:XValidation:rule="!has(self.type) || self.type != 'schedule' || (has(self.config) && 'schedule' in self.config)",fieldPath=".config",message="spec.trigger.config: lacks schedule, which type schedule needs: add schedule with a cron expression, for example 0 3 * * *"
// +kubebuilder:validation:XValidation:rule="!has(self.type) || self.type != 'event' || (has(self.config) && 'kind' in self.config && 'reason' in self.config)",fieldPath=".config",message="spec.trigger.config: lacks kind or reason, which type event needs: add kind and reason of the Kubernetes event to wait for"
// +kubebuilder:validation:XValidation:rule="!has(self.type) || self.type != 'manual' || !has(self.config)",fieldPath=".config",message="spec.trigger.config: has no use with type manual: remove it, or set type to schedule or event"
type Trigger struct {
	// type is manual, the default, for once when the workflow is created; schedule, for each time of a cron expression;
	// or event, for each Kubernetes event of a kind and reason in the workflow's namespace.
	// +kubebuilder:default=manual
	// +operator-sdk:csv:customresourcedefinitions:type=spec,order=2,displayName="Started by",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:select:manual","urn:alm:descriptor:com.tectonic.ui:select:schedule","urn:alm:descriptor:com.tectonic.ui:select:event","urn:alm:descriptor:com.tectonic.ui:fieldGroup:trigger"}
	Type TriggerType `json:"type,omitempty"`

	// config of the trigger: schedule (a cron expression of five fields or for example @daily, in UTC) for type schedule;
	// kind and reason for type event. A time or an event that comes while the workflow runs starts nothing. At most 16.
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=16
	Config map[string]ParameterValue `json:"config,omitempty"`
}

// TriggerType is a kind of trigger.
// +kubebuilder:validation:Enum=manual;schedule;event
type TriggerType string

// The kinds of triggers.
const (
	// TriggerManual starts the workflow once, when it is created.
	TriggerManual TriggerType = "manual"
	// TriggerSchedule starts it at each time of a cron expression.
	TriggerSchedule TriggerType = "schedule"
	// TriggerEvent starts it at each Kubernetes event of a kind and reason.
	TriggerEvent TriggerType = "event"
)

// ParameterValue is the value of an input or a setting.
// +kubebuilder:validation:MaxLength=4096
type ParameterValue string

// StageName is the name of a stage: a DNS label of at most 40 characters.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=40
// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
type StageName string

// Stage runs an Agent once.
type Stage struct {
	// name of the stage, a DNS label of at most 40 characters.
	// +required
	Name StageName `json:"name,omitempty"`

	// agent is the name of an Agent in the namespace of the workflow.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Agent string `json:"agent,omitempty"`

	// inputs are the values of the agent's inputs by name: a text, in which $(inputs.NAME) stands for an input of the
	// workflow and $(stages.STAGE.outputs.OUTPUT) for an output of a stage in dependsOn. At most 16.
	// +kubebuilder:validation:MaxProperties=16
	Inputs map[string]ParameterValue `json:"inputs,omitempty"`

	// outputs are the outputs of the agent to keep in status.results, as STAGE.OUTPUT. Default: all. At most 16.
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	Outputs []ParameterName `json:"outputs,omitempty"`

	// dependsOn are the stages that must have Succeeded before this one starts, all listed before it. At most 16.
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	DependsOn []StageName `json:"dependsOn,omitempty"`

	// condition is an expression in CEL that is evaluated when the stage could start; when it is false the stage is
	// Skipped, with those that depend on it. It sees inputs and the stages that this one depends on, directly or through
	// others, all values as text, for example double(stages.evaluate.outputs.accuracy) > 0.9; a name with a hyphen is
	// written stages['my-stage']. Default: the stage always runs.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Condition string `json:"condition,omitempty"`
}

// AgentWorkflowStatus is what the operator observed.
type AgentWorkflowStatus struct {
	// observedGeneration is the metadata.generation that this status speaks of.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// uid is the metadata.uid of the workflow that this status speaks of. Where it is not the workflow's own, the status came with the
	// workflow from a backup: stages that had not ended then run again.
	UID types.UID `json:"uid,omitempty"`

	// phase of the workflow: Pending, Running, Succeeded or Failed.
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=1,displayName="Phase",xDescriptors="urn:alm:descriptor:io.kubernetes.phase"
	Phase WorkflowPhase `json:"phase,omitempty"`

	// currentStage is the stage that runs; of several, the one listed first.
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=2,displayName="Stage that runs",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	CurrentStage string `json:"currentStage,omitempty"`

	// progress is the number of stages of the last start that have ended and of all, for example 2/3.
	// +kubebuilder:validation:MaxLength=16
	Progress string `json:"progress,omitempty"`

	// message says in a sentence what the workflow does or waits for.
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`

	// graph draws the stages of the last start in lines of text, each stage under the last of those that it depends on,
	// with phases and durations. At most 64.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=512
	Graph []string `json:"graph,omitempty"`

	// run is the number of the last start, from 1. The AIJobs of the last 3 are kept.
	Run int32 `json:"run,omitempty"`

	// nextStartTime is when a workflow with a schedule starts next.
	NextStartTime *metav1.Time `json:"nextStartTime,omitempty"`

	// lastSkippedTime is the last time of the schedule, or of an event, that started nothing because the workflow still
	// ran.
	LastSkippedTime *metav1.Time `json:"lastSkippedTime,omitempty"`

	// lastEventTime is the time of the newest event that the trigger has seen, by the clock of who reported it.
	LastEventTime *metav1.MicroTime `json:"lastEventTime,omitempty"`

	// lastEventVersion is the resourceVersion of that event. Those with a lower one start nothing.
	// +kubebuilder:validation:MaxLength=64
	LastEventVersion string `json:"lastEventVersion,omitempty"`

	// conditions are Ready, Complete and Failed, each with a reason and a message.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=6,displayName="Conditions",xDescriptors="urn:alm:descriptor:io.kubernetes.conditions"
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// stages are the stages of the last start.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Stages []StageStatus `json:"stages,omitempty"`

	// results are the outputs of the stages, by STAGE.OUTPUT. At most 512.
	// +kubebuilder:validation:MaxProperties=512
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=5,displayName="Results"
	Results map[string]string `json:"results,omitempty"`

	// startTime is when the workflow last started.
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=3,displayName="Started",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// completionTime is when it last came to its end.
	// +operator-sdk:csv:customresourcedefinitions:type=status,order=4,displayName="Ended",xDescriptors="urn:alm:descriptor:com.tectonic.ui:text"
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
}

// WorkflowPhase is the phase of an AgentWorkflow.
// +kubebuilder:validation:Enum=Pending;Running;Succeeded;Failed
type WorkflowPhase string

// The phases of an AgentWorkflow.
const (
	WorkflowPending   WorkflowPhase = "Pending"
	WorkflowRunning   WorkflowPhase = "Running"
	WorkflowSucceeded WorkflowPhase = "Succeeded"
	WorkflowFailed    WorkflowPhase = "Failed"
)

// StageStatus is one stage of an AgentWorkflow.
type StageStatus struct {
	// name of the stage.
	// +required
	Name StageName `json:"name,omitempty"`

	// phase of the stage: Pending (waits for other stages, or its AIJob waits for its place), Running, Succeeded, Failed or
	// Skipped.
	Phase StagePhase `json:"phase,omitempty"`

	// jobName is the AIJob in which the stage runs.
	JobName string `json:"jobName,omitempty"`

	// startTime is when the stage's AIJob first ran.
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// completionTime is when the stage came to its end.
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`

	// message says in a sentence why the stage is in its phase.
	Message string `json:"message,omitempty"`
}

// StagePhase is the phase of a stage.
// +kubebuilder:validation:Enum=Pending;Running;Succeeded;Failed;Skipped
type StagePhase string

// The phases of a stage.
const (
	StagePending   StagePhase = "Pending"
	StageRunning   StagePhase = "Running"
	StageSucceeded StagePhase = "Succeeded"
	StageFailed    StagePhase = "Failed"
	StageSkipped   StagePhase = "Skipped"
)
