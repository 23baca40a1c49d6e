package workflow

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
	"github.com/dcnlab/spot-training-operator/internal/tracing"
	"github.com/dcnlab/spot-training-operator/internal/workflowspec"
)

// AgentReconciler keeps the status of Agents.
type AgentReconciler struct {
	// Client reads from the manager's cache.
	client.Client
	Clock clock.PassiveClock
}

// +kubebuilder:rbac:groups=aiplatform.example.com,resources=agents;agentworkflows,verbs=list;watch,namespace=system
// +kubebuilder:rbac:groups=aiplatform.example.com,resources=agents/status,verbs=patch,namespace=system

// SetupWithManager registers the controller and what it watches.
func (r *AgentReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("agent").
		For(&aiplatformv1alpha1.Agent{}).
		Watches(&aiplatformv1alpha1.AgentWorkflow{}, reconciling.ByNames(agentsOf),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(tracing.Reconciler("Agent", r))
}

func agentsOf(workflow *aiplatformv1alpha1.AgentWorkflow) (names []string) {
	for i := range workflow.Spec.Stages {
		names = append(names, workflow.Spec.Stages[i].Agent)
	}
	return names
}

// Reconcile brings the status of one Agent up to date.
func (r *AgentReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	return reconciling.Object(ctx, r, request, &aiplatformv1alpha1.Agent{}, nil, r.reconcile)
}

func (r *AgentReconciler) reconcile(ctx context.Context, agent *aiplatformv1alpha1.Agent) (time.Duration, error) {
	var workflows aiplatformv1alpha1.AgentWorkflowList
	if err := r.List(ctx, &workflows, client.InNamespace(agent.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("list AgentWorkflows: %w", err)
	}
	next := agent.DeepCopy()
	next.Status = planAgent(observedAgent{agent: agent, workflows: workflows.Items, now: r.Clock.Now()})
	if equality.Semantic.DeepEqual(agent.Status, next.Status) {
		return 0, nil
	}
	if err := reporting.Patch(ctx, r, agent, next); err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	reporting.Tell(ctx, nil, agent, reporting.Transition{Before: agent.Status.Conditions, After: next.Status.Conditions})
	return 0, nil
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
		if slices.Contains(agentsOf(&o.workflows[i]), o.agent.Name) && o.workflows[i].DeletionTimestamp == nil {
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
