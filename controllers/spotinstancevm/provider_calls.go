package spotinstancevm

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/cloud"
)

// call is a request to the provider that spends or saves money, as it is logged.
type call struct {
	// what is asked for: create or delete.
	what string
	// instance, its zone and its machine type, and whether it is a spot instance.
	instance, zone, machineType string
	spot                        bool
	// reason of the decision.
	reason string
	// began is when it was sent.
	began time.Time
	// repeated says that the same request was sent before, and before is how that failed; nil when it did not.
	repeated bool
	before   error
}

// logCall logs how the provider answered. Of requests that are repeated only those that are answered otherwise than before are at Info.
func (r *Reconciler) logCall(ctx context.Context, c call, err error) {
	model := "on-demand"
	if c.spot {
		model = "spot"
	}
	logger := log.FromContext(ctx).WithValues("instance", c.instance, "zone", c.zone, "machineType", c.machineType, "model", model,
		"reason", c.reason, "duration", r.Clock.Since(c.began).Round(time.Millisecond).String())
	if c.repeated && cloud.ClassOf(c.before) == cloud.ClassOf(err) {
		logger = logger.V(1)
	}
	if err != nil {
		logger.Info("Failed to "+c.what+" instance", "class", cloud.ClassOf(err), "error", err.Error())
		return
	}
	logger.Info("Asked provider to " + c.what + " instance")
}

// callOf is a request for the instance of a step, which was sent before when the memory says so.
func (s step) callOf(what, reason string, sent request, began time.Time) call {
	return call{
		what: what, instance: s.name, zone: s.entry.Zone, machineType: s.machineType,
		spot: s.entry.ProvisioningModel != spotv1alpha1.ProvisioningStandard, reason: reason, began: began,
		repeated: sent.isSent(), before: sent.err,
	}
}
