package workflow

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
	"github.com/dcnlab/spot-training-operator/internal/workflowspec"
	"github.com/dcnlab/spot-training-operator/internal/workflowspec/graph"
)

// runsKept is the number of runs whose AIJobs are kept.
const runsKept = 3

// desired is what is to be done.
type desired struct {
	status aiplatformv1alpha1.AgentWorkflowStatus
	create []*aiplatformv1alpha1.AIJob // of the stages whose dependencies have succeeded
	stop   []*aiplatformv1alpha1.AIJob // to cancel
	remove []*aiplatformv1alpha1.AIJob // of runs long ago
	again  time.Duration               // when to look again without being told; 0 for never
}

func (d *desired) wake(after time.Duration) {
	d.again = reconciling.Sooner(d.again, after)
}

type planner struct {
	observed
	desired

	problems       map[aiplatformv1alpha1.StageName]workflowspec.Problem
	triggerProblem *workflowspec.Problem
}

// plan decides all that is to be done now.
func plan(o observed) desired {
	p := planner{
		observed: o, desired: desired{status: *o.workflow.Status.DeepCopy()},
		problems: workflowspec.Check(o.workflow, o.agents), triggerProblem: workflowspec.CheckTrigger(&o.workflow.Spec.Trigger, o.now),
	}
	p.takeOver()
	changed := p.status.ObservedGeneration != o.workflow.Generation
	p.status.ObservedGeneration = o.workflow.Generation
	p.setReady()
	if p.status.Phase == "" {
		p.status.Phase = aiplatformv1alpha1.WorkflowPending
	}
	if p.running() {
		p.advance()
	}
	p.stopLeftovers()
	p.trigger(changed)
	p.describe()
	return p.desired
}

func (p *planner) running() bool { return p.status.Phase == aiplatformv1alpha1.WorkflowRunning }

// problem is the first thing that keeps the workflow from being started.
func (p *planner) problem() *workflowspec.Problem {
	if p.triggerProblem != nil {
		return p.triggerProblem
	}
	for i := range p.workflow.Spec.Stages {
		if problem, ok := p.problems[p.workflow.Spec.Stages[i].Name]; ok {
			return &problem
		}
	}
	return nil
}

func (p *planner) setReady() {
	problem := p.problem()
	if problem == nil {
		p.setCondition(reasons.ConditionReady, metav1.ConditionTrue, reasons.Ready,
			"every stage has its Agent, and all references are right")
		return
	}
	message := problem.Message
	if more := len(p.problems) - 1; more > 0 && p.triggerProblem == nil {
		message += fmt.Sprintf(" (and %d more stages have problems)", more)
	}
	p.setCondition(reasons.ConditionReady, metav1.ConditionFalse, problem.Reason, message)
}

func (p *planner) setCondition(kind string, status metav1.ConditionStatus, reason, message string) {
	reporting.Set(&p.status.Conditions, p.workflow.Generation, p.now, kind, status, reason, message)
}

// trigger starts the workflow when its time has come. What comes while it runs starts nothing; what came while the
// operator did not look, or while the workflow was not ready, starts it once.
func (p *planner) trigger(changed bool) {
	trigger := &p.workflow.Spec.Trigger
	if trigger.Type != aiplatformv1alpha1.TriggerSchedule || p.triggerProblem != nil {
		p.status.NextStartTime = nil
	}
	if p.triggerProblem != nil {
		return
	}
	switch trigger.Type {
	case aiplatformv1alpha1.TriggerSchedule:
		p.schedule(changed)
	case aiplatformv1alpha1.TriggerEvent:
		p.await()
	default:
		if p.status.Run == 0 && p.problem() == nil {
			p.start()
		}
	}
}

func (p *planner) schedule(changed bool) {
	schedule, err := workflowspec.Schedule(&p.workflow.Spec.Trigger, p.now)
	if err != nil { // the trigger would misfire
		return
	}
	next := p.status.NextStartTime
	due := next != nil && !p.now.Before(next.Time)
	switch {
	case due && p.running():
		p.status.LastSkippedTime = next
	case due && p.problem() != nil:
		return // an Agent that comes, or a change of the workflow, will tell
	case due:
		p.start()
	}
	if next == nil || changed || due {
		p.status.NextStartTime = ptr.To(metav1.NewTime(schedule.Next(p.now.UTC())))
	}
	p.wake(p.status.NextStartTime.Sub(p.now))
}

// await starts the workflow when an event came after the last one that was seen. Those that come while it runs are only
// noted at its end, so that many cost no writes.
func (p *planner) await() {
	event := newest(p.events, p.workflow)
	if event == nil || p.running() {
		return
	}
	at := metav1.NewMicroTime(event.happened.Truncate(time.Microsecond))
	switch {
	case p.workflow.Status.Phase == aiplatformv1alpha1.WorkflowRunning: // it has just ended
		p.status.LastSkippedTime = ptr.To(metav1.NewTime(at.Time))
	case p.problem() == nil:
		p.start()
	default:
		return
	}
	p.status.LastEventTime, p.status.LastEventVersion = &at, event.version
}

// start begins a run. Its AIJobs are made once this is written, so that none can be of a run that is not known of.
func (p *planner) start() {
	s := &p.status
	s.Run++
	s.Phase, s.StartTime, s.CompletionTime = aiplatformv1alpha1.WorkflowRunning, ptr.To(metav1.NewTime(p.now)), nil
	s.Results, s.Stages = nil, nil
	for i := range p.workflow.Spec.Stages {
		s.Stages = append(s.Stages, aiplatformv1alpha1.StageStatus{
			Name: p.workflow.Spec.Stages[i].Name, Phase: aiplatformv1alpha1.StagePending,
		})
	}
	meta.RemoveStatusCondition(&s.Conditions, reasons.ConditionComplete)
	meta.RemoveStatusCondition(&s.Conditions, reasons.ConditionFailed)
	for _, name := range slices.Sorted(maps.Keys(p.jobs)) { // so that a plan is the same every time
		job := p.jobs[name]
		if runOf(job) <= s.Run-runsKept && job.DeletionTimestamp == nil {
			p.remove = append(p.remove, job)
		}
	}
}

// stopLeftovers cancels AIJobs of stages that were given up: made just before the operator crashed, and only found now.
func (p *planner) stopLeftovers() {
	for i := range p.status.Stages {
		stage := &p.status.Stages[i]
		if job := p.jobOf(stage.Name); job != nil && stage.Phase == aiplatformv1alpha1.StageSkipped {
			p.cancel(job)
		}
	}
}

// cancel has an AIJob stopped, unless it is being stopped already or has ended.
func (p *planner) cancel(job *aiplatformv1alpha1.AIJob) {
	if !job.Status.Phase.Ended() && !ptr.Deref(job.Spec.Cancel, false) && job.DeletionTimestamp == nil {
		p.stop = append(p.stop, job)
	}
}

// describe writes what the status says in words.
func (p *planner) describe() {
	s := &p.status
	s.CurrentStage, s.Progress, s.Message = "", "", ""
	ended := 0
	for i := range s.Stages {
		if stageEnded(&s.Stages[i]) {
			ended++
		}
	}
	if len(s.Stages) > 0 {
		s.Progress = fmt.Sprintf("%d/%d", ended, len(s.Stages))
	}
	if current := p.current(); current != nil && p.running() {
		s.CurrentStage = string(current.Name)
	}
	s.Message = shorten(p.story())
	s.Graph = graph.Draw(&aiplatformv1alpha1.AgentWorkflow{Spec: p.workflow.Spec, Status: *s})
}

// current is the stage that runs; when none does, one whose AIJob waits; of several, the one listed first.
func (p *planner) current() *aiplatformv1alpha1.StageStatus {
	var waits *aiplatformv1alpha1.StageStatus
	for i := range p.status.Stages {
		stage := &p.status.Stages[i]
		if stage.Phase == aiplatformv1alpha1.StageRunning {
			return stage
		}
		if waits == nil && stage.Phase == aiplatformv1alpha1.StagePending && (stage.JobName != "" || stage.Message != "") {
			waits = stage
		}
	}
	return waits
}

// story says in a sentence what the workflow does or waits for.
func (p *planner) story() string {
	trigger := &p.workflow.Spec.Trigger
	failed := meta.FindStatusCondition(p.status.Conditions, reasons.ConditionFailed)
	problem, current := p.problem(), p.current()
	switch {
	case failed != nil && p.running():
		return failed.Message + "; running stages are being stopped"
	case failed != nil:
		return failed.Message
	case p.running() && current == nil:
		return "starts"
	case p.running() && current.Message != "":
		return fmt.Sprintf("stage %s: %s", current.Name, current.Message)
	case p.running() && current.Phase == aiplatformv1alpha1.StageRunning:
		return fmt.Sprintf("stage %s runs", current.Name)
	case p.running():
		return fmt.Sprintf("stage %s starts", current.Name)
	case problem != nil:
		return problem.Message
	case trigger.Type == aiplatformv1alpha1.TriggerSchedule && p.status.Run == 0:
		return fmt.Sprintf("starts at %s (UTC)", trigger.Config["schedule"])
	case trigger.Type == aiplatformv1alpha1.TriggerEvent && p.status.Run == 0:
		return fmt.Sprintf("waits for an event %s of kind %s", trigger.Config["reason"], trigger.Config["kind"])
	}
	if complete := meta.FindStatusCondition(p.status.Conditions, reasons.ConditionComplete); complete != nil {
		return complete.Message
	}
	return ""
}
