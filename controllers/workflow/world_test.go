package workflow

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// world is what a plan observes, built step by step. Its clock stands at noon until it is moved.
type world struct{ observed }

// agentNamed reads a text and yields two.
func agentNamed(name string) *aiplatformv1alpha1.Agent {
	return &aiplatformv1alpha1.Agent{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "team"},
		Spec: aiplatformv1alpha1.AgentSpec{
			JobType: aiplatformv1alpha1.JobInference, Image: "registry.example.com/agents/" + name + ":1",
			Inputs:      []aiplatformv1alpha1.AgentInput{{Name: "text", Default: ptr.To("nothing")}},
			Outputs:     []aiplatformv1alpha1.AgentOutput{{Name: "out"}, {Name: "score"}},
			RetryPolicy: aiplatformv1alpha1.RetryPolicy{MaxRetries: ptr.To[int32](2)},
		},
	}
}

// stage is one of the agent reader.
func stage(name aiplatformv1alpha1.StageName, dependsOn ...aiplatformv1alpha1.StageName) aiplatformv1alpha1.Stage {
	return aiplatformv1alpha1.Stage{Name: name, Agent: "reader", DependsOn: dependsOn}
}

// worldOf has a workflow of these stages, just created.
func worldOf(stages ...aiplatformv1alpha1.Stage) *world {
	workflow := &aiplatformv1alpha1.AgentWorkflow{ObjectMeta: metav1.ObjectMeta{
		Name: "digest", Namespace: "team", UID: "uid-of-digest", Generation: 1, CreationTimestamp: metav1.NewTime(builders.Noon),
	}}
	workflow.Spec.Trigger.Type = aiplatformv1alpha1.TriggerManual
	workflow.Spec.Stages = stages
	workflow.Spec.Priority = ptr.To[int32](50)
	return &world{observed{
		now: builders.Noon, workflow: workflow, agents: map[string]*aiplatformv1alpha1.Agent{"reader": agentNamed("reader")},
		jobs: map[string]*aiplatformv1alpha1.AIJob{},
	}}
}

func (w *world) triggered(by aiplatformv1alpha1.TriggerType, config ...aiplatformv1alpha1.ParameterValue) *world {
	w.workflow.Spec.Trigger = aiplatformv1alpha1.Trigger{Type: by, Config: map[string]aiplatformv1alpha1.ParameterValue{}}
	for i := 0; i < len(config); i += 2 {
		w.workflow.Spec.Trigger.Config[string(config[i])] = config[i+1]
	}
	return w
}

// at moves the clock to so long after noon.
func (w *world) at(after time.Duration) *world {
	w.now = builders.Noon.Add(after)
	return w
}

// step carries a plan out, as the controller and the API server would, and returns it.
func (w *world) step() desired {
	d := plan(w.observed)
	for _, job := range d.stop {
		job.Spec.Cancel = ptr.To(true)
	}
	for _, job := range d.create {
		job.UID = types.UID("uid-of-" + job.Name)
		w.jobs[job.Name] = job
	}
	for _, job := range d.remove {
		delete(w.jobs, job.Name)
	}
	w.workflow.Status = d.status
	return d
}

// settle steps until nothing changes, and returns all that was done.
func (w *world) settle() []string {
	var done []string
	for range 20 {
		before := fmt.Sprint(w.workflow.Status)
		d := w.step()
		done = append(done, steps(d)...)
		if fmt.Sprint(w.workflow.Status) == before && len(steps(d)) == 0 {
			return done
		}
	}
	panic("the plan does not settle")
}

// steps is a plan in words.
func steps(d desired) []string {
	var list []string
	for _, job := range d.stop {
		list = append(list, "stop "+job.Labels[aiplatformv1alpha1.LabelStage])
	}
	for _, job := range d.create {
		text := "create " + job.Labels[aiplatformv1alpha1.LabelStage]
		for _, env := range job.Spec.Env {
			if env.Value != "nothing" {
				text += " " + env.Name + "=" + env.Value
			}
		}
		list = append(list, text)
	}
	for _, job := range d.remove {
		list = append(list, "remove "+job.Labels[aiplatformv1alpha1.LabelStage]+" of run "+job.Labels[aiplatformv1alpha1.LabelWorkflowRun])
	}
	return list
}

func (w *world) job(stage aiplatformv1alpha1.StageName) *aiplatformv1alpha1.AIJob {
	return w.jobs[jobName(w.workflow, w.workflow.Status.Run, stage)]
}

// is sets the phase of a stage's AIJob, with its reason and message.
func (w *world) is(stage aiplatformv1alpha1.StageName, phase aiplatformv1alpha1.AIJobPhase, why ...string) {
	status := &w.job(stage).Status
	status.Phase, status.Reason, status.Message = phase, "", ""
	if len(why) == 2 {
		status.Reason, status.Message = why[0], why[1]
	}
	now := metav1.NewTime(w.now)
	if phase == aiplatformv1alpha1.AIJobRunning {
		status.StartTime = &now
	}
	if w.job(stage).Status.Phase.Ended() {
		status.CompletionTime = &now
	}
}

// yields ends a stage's AIJob with outputs in pairs.
func (w *world) yields(stage aiplatformv1alpha1.StageName, outputs ...string) {
	w.is(stage, aiplatformv1alpha1.AIJobSucceeded)
	w.job(stage).Status.Outputs = map[string]string{}
	for i := 0; i < len(outputs); i += 2 {
		w.job(stage).Status.Outputs[outputs[i]] = outputs[i+1]
	}
}

// phases are the phases of the stages, in short, in the order of the spec.
func phases(status aiplatformv1alpha1.AgentWorkflowStatus) string {
	text := string(status.Phase) + ":"
	for _, s := range status.Stages {
		text += fmt.Sprintf(" %s %s", s.Name, s.Phase)
		if s.Message != "" {
			text += " (" + s.Message + ")"
		}
	}
	return text
}

// reasonsOf are the conditions of a status, in short.
func reasonsOf(status aiplatformv1alpha1.AgentWorkflowStatus) map[string]string {
	short := map[string]string{}
	for _, c := range status.Conditions {
		short[c.Type] = string(c.Status) + " " + c.Reason
	}
	return short
}
