package manager

import (
	"context"
	"errors"

	ctrl "sigs.k8s.io/controller-runtime"
)

// addSpotControllers adds what keeps jobs alive on spot instances.
func addSpotControllers(ctx context.Context, mgr ctrl.Manager, o options) error {
	return errors.Join(addNodeAgent(mgr, o), addSpotInstanceVMs(ctx, mgr, o))
}
