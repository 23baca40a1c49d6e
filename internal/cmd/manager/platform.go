package manager

import (
	"context"
	"errors"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/dcnlab/spot-training-operator/internal/queueing"
)

// addPlatformControllers adds what queues, admits and runs AI jobs.
func addPlatformControllers(ctx context.Context, mgr ctrl.Manager, o options, decider *queueing.Service) error {
	return errors.Join(
		addAdmission(mgr, decider),
		addAIJobs(ctx, mgr, o, decider),
		addAgents(ctx, mgr, o),
		addWorkerPools(mgr, o),
	)
}
