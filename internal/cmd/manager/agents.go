package manager

import (
	"context"
	"fmt"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/dcnlab/spot-training-operator/controllers/workflow"
	"github.com/dcnlab/spot-training-operator/internal/redact"
)

// addAgents adds the controllers of Agents and AgentWorkflows.
func addAgents(ctx context.Context, mgr ctrl.Manager, o options) error {
	agents := &workflow.AgentReconciler{Client: mgr.GetClient(), Clock: clock.RealClock{}}
	if err := agents.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("set up the Agent controller: %w", err)
	}
	workflows := &workflow.Reconciler{
		Direct: mgr.GetAPIReader(), Clock: clock.RealClock{},
		Recorder: redact.Events(mgr.GetEventRecorder("spot-training-operator")),
	}
	if err := workflows.SetupWithManager(ctx, mgr, workflow.Options{Concurrency: o.concurrency}); err != nil {
		return fmt.Errorf("set up the AgentWorkflow controller: %w", err)
	}
	return nil
}
