package workflow

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/workflowspec"
)

// advance brings the stages of a workflow that runs further.
func (p *planner) advance() {
	for i := range p.workflow.Spec.Stages {
		p.follow(&p.workflow.Spec.Stages[i])
	}
	if !p.failing() {
		for i := range p.workflow.Spec.Stages {
			p.begin(i)
		}
	}
	switch {
	case p.failing():
		p.create = nil
		p.giveUp()
	case p.allEnded():
		p.end(aiplatformv1alpha1.WorkflowSucceeded)
		p.setCondition(reasons.ConditionComplete, metav1.ConditionTrue, reasons.StagesEnded, p.sum())
	case p.workflow.Spec.TimeoutSeconds != nil:
		p.wake(p.deadline().Sub(p.now))
	}
}

func (p *planner) stage(name aiplatformv1alpha1.StageName) *aiplatformv1alpha1.StageStatus {
	for i := range p.status.Stages {
		if p.status.Stages[i].Name == name {
			return &p.status.Stages[i]
		}
	}
	p.status.Stages = append(p.status.Stages, aiplatformv1alpha1.StageStatus{Name: name, Phase: aiplatformv1alpha1.StagePending})
	return &p.status.Stages[len(p.status.Stages)-1]
}

// jobOf is the AIJob of a stage in the current run; nil when there is none.
func (p *planner) jobOf(stage aiplatformv1alpha1.StageName) *aiplatformv1alpha1.AIJob {
	return p.jobs[jobName(p.workflow, p.status.Run, stage)]
}

// follow brings the status of a stage up to that of its AIJob.
func (p *planner) follow(spec *aiplatformv1alpha1.Stage) {
	stage := p.stage(spec.Name)
	if stageEnded(stage) {
		return
	}
	job := p.jobOf(spec.Name)
	if job == nil {
		if stage.JobName != "" {
			p.fail(stage, fmt.Sprintf("AIJob %s was deleted before it ended", stage.JobName))
		}
		return
	}
	stage.JobName = job.Name
	if job.Status.StartTime != nil && stage.StartTime == nil {
		stage.StartTime = job.Status.StartTime.DeepCopy()
	}
	stage.Phase, stage.Message = aiplatformv1alpha1.StagePending, ""
	switch job.Status.Phase {
	case aiplatformv1alpha1.AIJobSucceeded:
		stage.Phase, stage.CompletionTime = aiplatformv1alpha1.StageSucceeded, p.completion(job)
		p.collect(spec, stage, job)
	case aiplatformv1alpha1.AIJobFailed, aiplatformv1alpha1.AIJobDeadLetter, aiplatformv1alpha1.AIJobCancelled:
		p.fail(stage, "its AIJob ended as "+why(job))
		stage.CompletionTime = p.completion(job)
	case aiplatformv1alpha1.AIJobRunning:
		stage.Phase = aiplatformv1alpha1.StageRunning
		if job.Status.RetryCount > 0 {
			stage.Message = fmt.Sprintf("try %d", job.Status.RetryCount+1)
		}
	case aiplatformv1alpha1.AIJobRetrying:
		stage.Phase, stage.Message = aiplatformv1alpha1.StageRunning, "waiting for retry: "+why(job)
	case aiplatformv1alpha1.AIJobScheduled:
		stage.Message = "its pods are starting"
	case aiplatformv1alpha1.AIJobQueued:
		stage.Message = "queued"
		if queue := job.Spec.QueueName; queue != "" {
			stage.Message = "queued in " + queue
		}
		if job.Status.Reason != "" {
			stage.Message += " (" + job.Status.Reason + ")"
		}
	}
	stage.Message = shorten(stage.Message)
}

func why(job *aiplatformv1alpha1.AIJob) string {
	text := string(job.Status.Phase)
	if job.Status.Reason != "" {
		text += " (" + job.Status.Reason + ")"
	}
	if job.Status.Message != "" {
		text += ": " + job.Status.Message
	}
	return text
}

func (p *planner) completion(job *aiplatformv1alpha1.AIJob) *metav1.Time {
	if job.Status.CompletionTime != nil {
		return job.Status.CompletionTime.DeepCopy()
	}
	return ptr.To(metav1.NewTime(p.now))
}

func (p *planner) fail(stage *aiplatformv1alpha1.StageStatus, message string) {
	stage.Phase, stage.Message = aiplatformv1alpha1.StageFailed, shorten(message)
	stage.CompletionTime = ptr.To(metav1.NewTime(p.now))
}

// collect keeps the outputs of a stage that succeeded.
func (p *planner) collect(spec *aiplatformv1alpha1.Stage, stage *aiplatformv1alpha1.StageStatus, job *aiplatformv1alpha1.AIJob) {
	var missing []string
	for _, name := range p.keeps(spec) {
		value, ok := job.Status.Outputs[string(name)]
		if !ok {
			missing = append(missing, string(name))
			continue
		}
		if p.status.Results == nil {
			p.status.Results = map[string]string{}
		}
		p.status.Results[string(spec.Name)+"."+string(name)] = value
	}
	if len(missing) > 0 {
		stage.Message = "did not report " + strings.Join(missing, ", ")
	}
}

// keeps are the outputs of a stage that are kept.
func (p *planner) keeps(spec *aiplatformv1alpha1.Stage) []aiplatformv1alpha1.ParameterName {
	agent := p.agents[spec.Agent]
	if len(spec.Outputs) > 0 || agent == nil {
		return spec.Outputs
	}
	var all []aiplatformv1alpha1.ParameterName
	for _, output := range agent.Spec.Outputs {
		all = append(all, output.Name)
	}
	return all
}

// values are what the references and the condition of a stage see: the outputs of those that it depends on, from their AIJobs
// while these exist, else those that were kept.
func (p *planner) values(stage aiplatformv1alpha1.StageName) workflowspec.Values {
	values := workflowspec.Values{
		Inputs: p.workflow.Spec.Inputs, Outputs: map[aiplatformv1alpha1.StageName]map[string]string{},
	}
	for before := range workflowspec.Upstream(p.workflow.Spec.Stages)[stage] {
		outputs := map[string]string{}
		for name, value := range p.status.Results {
			if output, ok := strings.CutPrefix(name, string(before)+"."); ok {
				outputs[output] = value
			}
		}
		if job := p.jobOf(before); job != nil {
			maps.Copy(outputs, job.Status.Outputs)
		}
		values.Outputs[before] = outputs
	}
	return values
}

// begin creates the AIJob of a stage once its dependencies have succeeded.
func (p *planner) begin(index int) {
	spec := &p.workflow.Spec.Stages[index]
	stage := p.stage(spec.Name)
	if stageEnded(stage) || stage.JobName != "" {
		return
	}
	for _, name := range spec.DependsOn {
		switch before := p.stage(name); before.Phase {
		case aiplatformv1alpha1.StageSucceeded:
		case aiplatformv1alpha1.StageSkipped:
			stage.Phase, stage.Message = aiplatformv1alpha1.StageSkipped, fmt.Sprintf("stage %s was skipped", name)
			return
		default:
			return
		}
	}
	if problem, ok := p.problems[spec.Name]; ok { // it came after the start: the stage waits until it is corrected
		stage.Message = shorten(problem.Message)
		return
	}
	stage.Message = ""
	values := p.values(spec.Name)
	holds, err := workflowspec.Holds(spec, values)
	if err != nil {
		p.fail(stage, fmt.Sprintf("spec.stages[%d].condition: cannot be evaluated: %v", index, err))
		return
	}
	if !holds {
		stage.Phase, stage.Message = aiplatformv1alpha1.StageSkipped, "its condition is false"
		return
	}
	inputs, err := workflowspec.Inputs(p.agents[spec.Agent], spec, values)
	if err != nil {
		p.fail(stage, fmt.Sprintf("spec.stages[%d].inputs: %v", index, err))
		return
	}
	job := buildJob(p.observed, p.status.Run, spec, inputs)
	stage.JobName = job.Name
	p.create = append(p.create, job)
}

func (p *planner) deadline() time.Time {
	return p.status.StartTime.Add(time.Duration(min(*p.workflow.Spec.TimeoutSeconds, aiplatformv1alpha1.MaxTimeoutSeconds)) * time.Second)
}

// failing says whether the workflow is to end as Failed. Why is kept in the condition Failed, which is only True once all
// stages have ended.
func (p *planner) failing() bool {
	if meta.FindStatusCondition(p.status.Conditions, reasons.ConditionFailed) != nil {
		return true
	}
	for i := range p.status.Stages {
		if stage := &p.status.Stages[i]; stage.Phase == aiplatformv1alpha1.StageFailed {
			p.setCondition(reasons.ConditionFailed, metav1.ConditionFalse, reasons.StageFailed,
				fmt.Sprintf("stage %s failed: %s", stage.Name, stage.Message))
			return true
		}
	}
	if p.workflow.Spec.TimeoutSeconds == nil || p.now.Before(p.deadline()) || p.allEnded() {
		return false
	}
	p.setCondition(reasons.ConditionFailed, metav1.ConditionFalse, reasons.DeadlineExceeded,
		fmt.Sprintf("the workflow ran longer than spec.timeoutSeconds, %d: raise it, or find the stage that takes so long in "+
			"status.graph", *p.workflow.Spec.TimeoutSeconds))
	return true
}

// giveUp stops the stages that run, and ends the workflow once none does.
func (p *planner) giveUp() {
	for i := range p.status.Stages {
		stage := &p.status.Stages[i]
		if stageEnded(stage) {
			continue
		}
		job := p.jobOf(stage.Name)
		if job == nil {
			stage.Phase, stage.JobName, stage.Message = aiplatformv1alpha1.StageSkipped, "", "the workflow is failing"
			continue
		}
		stage.Message = "is being stopped"
		p.cancel(job)
	}
	if !p.allEnded() {
		return
	}
	p.end(aiplatformv1alpha1.WorkflowFailed)
	failed := *meta.FindStatusCondition(p.status.Conditions, reasons.ConditionFailed)
	p.setCondition(reasons.ConditionFailed, metav1.ConditionTrue, failed.Reason, failed.Message)
}

func (p *planner) allEnded() bool {
	return !slices.ContainsFunc(p.status.Stages, func(s aiplatformv1alpha1.StageStatus) bool { return !stageEnded(&s) })
}

func (p *planner) end(phase aiplatformv1alpha1.WorkflowPhase) {
	p.status.Phase, p.status.CompletionTime = phase, ptr.To(metav1.NewTime(p.now))
}

func (p *planner) sum() string {
	skipped := 0
	for i := range p.status.Stages {
		if p.status.Stages[i].Phase == aiplatformv1alpha1.StageSkipped {
			skipped++
		}
	}
	text := fmt.Sprintf("%d of %d stages succeeded", len(p.status.Stages)-skipped, len(p.status.Stages))
	if skipped > 0 {
		text += fmt.Sprintf(", %d skipped", skipped)
	}
	return text
}

// longestMessage is what status.message takes.
const longestMessage = 1024

// shorten keeps a message within bounds, in whole characters.
func shorten(text string) string {
	if runes := []rune(text); len(runes) > longestMessage {
		return string(runes[:longestMessage-1]) + "…"
	}
	return text
}
