// Package workflow runs AgentWorkflows: it starts them by their triggers, creates an AIJob for each stage whose dependencies have
// succeeded, and passes outputs on to later stages. Every reconciliation observes, plans, applies and reports, in files of these names; all
// decisions are in the plan, which is a pure function. It also reports of each Agent whether workflows can use it, and how many do.
package workflow

import (
	"context"
	"time"

	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
)

// Reconciler runs AgentWorkflows.
type Reconciler struct {
	// Client reads AgentWorkflows, Agents and AIJobs from the manager's cache, and reads its own writes.
	client.Client
	// Direct reads from the API server.
	Direct   client.Reader
	Clock    clock.PassiveClock
	Recorder events.EventRecorder

	triggers *triggers
}

// +kubebuilder:rbac:groups=aiplatform.example.com,resources=agents;agentworkflows,verbs=list;watch,namespace=system
// +kubebuilder:rbac:groups=aiplatform.example.com,resources=agentworkflows/status,verbs=patch,namespace=system
// +kubebuilder:rbac:groups=aiplatform.example.com,resources=agentworkflows/finalizers,verbs=update,namespace=system
// +kubebuilder:rbac:groups=aiplatform.example.com,resources=aijobs,verbs=get;list;watch;create;patch;delete,namespace=system
// +kubebuilder:rbac:groups=aiplatform.example.com,resources=aijobs/user,verbs=update
// +kubebuilder:rbac:groups="",resources=events,verbs=list;watch,namespace=system
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create,namespace=system

// Reconcile brings one AgentWorkflow a step further.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	return reconciling.Object(ctx, r, request, &aiplatformv1alpha1.AgentWorkflow{}, r.triggers.forget, r.reconcile)
}

func (r *Reconciler) reconcile(ctx context.Context, workflow *aiplatformv1alpha1.AgentWorkflow) (time.Duration, error) {
	o, err := r.observe(ctx, workflow)
	if err != nil {
		return 0, err
	}
	d := plan(o)
	refused, failed := r.apply(ctx, o, d)
	addRefused(o, &d, refused)
	reporting.SetChildrenApplied(&d.status.Conditions, workflow.Generation, o.now, failed)
	if err := r.report(ctx, o, &d.status); err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	return d.again, failed
}
