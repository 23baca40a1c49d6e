package manager

import (
	ctrl "sigs.k8s.io/controller-runtime"
)

// addSpotControllers adds what keeps jobs alive on spot instances.
func addSpotControllers(mgr ctrl.Manager, o options) error {
	return addNodeAgent(mgr, o)
}
