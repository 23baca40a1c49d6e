package workflow

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/child"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
	"github.com/dcnlab/spot-training-operator/internal/tracing"
	"github.com/dcnlab/spot-training-operator/internal/workflowspec"
)

// AgentReconciler keeps the status of Agents.
type AgentReconciler struct {
	// Client reads from the manager's cache.
	client.Client
	// Clock tells the time.
	Clock clock.PassiveClock
}

// +kubebuilder:rbac:groups=aiplatform.example.com,resources=agents;agentworkflows,verbs=list;watch
// +kubebuilder:rbac:groups=aiplatform.example.com,resources=agents/status,verbs=patch

// SetupWithManager registers the controller and what it watches.
func (r *AgentReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("agent").
		For(&aiplatformv1alpha1.Agent{}).
		Watches(&aiplatformv1alpha1.AgentWorkflow{}, handler.EnqueueRequestsFromMapFunc(agentsOf),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(tracing.Reconciler("Agent", r))
}

// agentsOf are the agents that a workflow names.
func agentsOf(_ context.Context, object client.Object) []reconcile.Request {
	workflow, ok := object.(*aiplatformv1alpha1.AgentWorkflow)
	if !ok {
		return nil
	}
	var requests []reconcile.Request
	for i := range workflow.Spec.Stages {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{
			Namespace: workflow.Namespace, Name: workflow.Spec.Stages[i].Agent,
		}})
	}
	return requests
}

// Reconcile brings the status of one Agent up to date.
func (r *AgentReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var agent aiplatformv1alpha1.Agent
	if err := r.Get(ctx, request.NamespacedName, &agent); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if agent.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	var workflows aiplatformv1alpha1.AgentWorkflowList
	if err := r.List(ctx, &workflows, client.InNamespace(agent.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, fmt.Errorf("list AgentWorkflows: %w", err)
	}
	err := r.report(ctx, &agent, planAgent(observedAgent{agent: &agent, workflows: workflows.Items, now: r.Clock.Now()}))
	if again, ok := child.RetryAfter(err); ok {
		return ctrl.Result{RequeueAfter: again}, nil
	}
	return ctrl.Result{}, client.IgnoreNotFound(err)
}

// report writes the status when it changed.
func (r *AgentReconciler) report(ctx context.Context, agent *aiplatformv1alpha1.Agent, status aiplatformv1alpha1.AgentStatus) error {
	if equality.Semantic.DeepEqual(agent.Status, status) {
		return nil
	}
	next := agent.DeepCopy()
	next.Status = status
	if err := reporting.Patch(ctx, r, agent, next); err != nil {
		return err
	}
	reporting.Tell(ctx, nil, agent, reporting.Transition{Before: agent.Status.Conditions, After: status.Conditions})
	return nil
}

// observedAgent is all that the plan of an Agent is made from.
type observedAgent struct {
	agent     *aiplatformv1alpha1.Agent
	workflows []aiplatformv1alpha1.AgentWorkflow // of the agent's namespace
	now       time.Time
}

// planAgent returns the status that the agent should have.
func planAgent(o observedAgent) aiplatformv1alpha1.AgentStatus {
	status := *o.agent.Status.DeepCopy()
	status.ObservedGeneration = o.agent.Generation
	status.Workflows = 0
	for i := range o.workflows {
		uses := slices.ContainsFunc(o.workflows[i].Spec.Stages, func(s aiplatformv1alpha1.Stage) bool { return s.Agent == o.agent.Name })
		if uses && o.workflows[i].DeletionTimestamp == nil {
			status.Workflows++
		}
	}
	ready, reason, message := metav1.ConditionTrue, reasons.Ready, "workflows can use the agent"
	if problem := workflowspec.CheckAgent(o.agent); problem != "" {
		ready, reason, message = metav1.ConditionFalse, reasons.InvalidAgent, problem
	}
	reporting.Set(&status.Conditions, o.agent.Generation, o.now, reasons.ConditionReady, ready, reason, message)
	return status
}
