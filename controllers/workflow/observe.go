package workflow

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
	"github.com/dcnlab/spot-training-operator/internal/workflowspec"
)

// observed is all that a plan is made from.
type observed struct {
	now      time.Time
	workflow *aiplatformv1alpha1.AgentWorkflow
	agents   map[string]*aiplatformv1alpha1.Agent // that the stages name
	jobs     map[string]*aiplatformv1alpha1.AIJob // of the workflow, by name, also of earlier runs
	events   []occurrence                         // that the trigger waits for
}

// observe reads from the cache what exists of a workflow.
func (r *Reconciler) observe(ctx context.Context, workflow *aiplatformv1alpha1.AgentWorkflow) (observed, error) {
	o := observed{
		now: r.Clock.Now(), workflow: workflow,
		agents: map[string]*aiplatformv1alpha1.Agent{}, jobs: map[string]*aiplatformv1alpha1.AIJob{},
	}
	for _, name := range agentsOf(workflow) {
		if o.agents[name] != nil {
			continue
		}
		agent, err := reconciling.Get[aiplatformv1alpha1.Agent](ctx, r, workflow.Namespace, name)
		if err != nil {
			return o, err
		}
		if agent != nil {
			o.agents[name] = agent
		}
	}
	jobs, err := reconciling.List[*aiplatformv1alpha1.AIJob](ctx, r, &aiplatformv1alpha1.AIJobList{},
		client.InNamespace(workflow.Namespace), client.MatchingFields{ownerIndex: string(workflow.UID)})
	if err != nil {
		return o, err
	}
	for _, job := range jobs {
		o.jobs[job.Name] = job
	}
	if err := r.observeHidden(ctx, &o); err != nil {
		return o, err
	}
	err = r.observeEvents(ctx, &o)
	return o, err
}

// observeHidden asks the API server for AIJobs that the status names and the cache lacks: only it knows that one is gone.
func (r *Reconciler) observeHidden(ctx context.Context, o *observed) error {
	if o.workflow.Status.Phase != aiplatformv1alpha1.WorkflowRunning {
		return nil
	}
	for i := range o.workflow.Status.Stages {
		stage := &o.workflow.Status.Stages[i]
		if stage.JobName == "" || o.jobs[stage.JobName] != nil || stageEnded(stage) {
			continue
		}
		job, err := reconciling.Get[aiplatformv1alpha1.AIJob](ctx, r.Direct, o.workflow.Namespace, stage.JobName)
		if err != nil {
			return err
		}
		if job != nil && metav1.IsControlledBy(job, o.workflow) {
			o.jobs[job.Name] = job
		}
	}
	return nil
}

// observeEvents looks for the events that the trigger waits for.
func (r *Reconciler) observeEvents(ctx context.Context, o *observed) error {
	key, trigger := client.ObjectKeyFromObject(o.workflow), &o.workflow.Spec.Trigger
	if trigger.Type != aiplatformv1alpha1.TriggerEvent || workflowspec.CheckTrigger(trigger, o.now) != nil {
		r.triggers.forget(key)
		return nil
	}
	kind, reason, err := workflowspec.Event(trigger)
	if err != nil {
		return err
	}
	known, err := r.triggers.want(ctx, key, awaited{o.workflow.Namespace, kind, reason})
	if err != nil {
		return err
	}
	o.events = occurrences(known, o.workflow, o.jobs)
	return nil
}
