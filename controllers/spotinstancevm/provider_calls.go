package spotinstancevm

import (
	"cmp"
	"context"
	"maps"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/cloud"
	"github.com/dcnlab/spot-training-operator/internal/cloud/zonehistory"
)

// specOf is the wish for the instance of an entry. It depends on nothing but the spec and the entry, so that a request
// which is sent again says the same.
func (r *Reconciler) specOf(
	vm *spotv1alpha1.SpotInstanceVM, entry *spotv1alpha1.ProvisionedInstance, metadata map[string]string,
) cloud.InstanceSpec {
	gcp := &vm.Spec.GCP
	spec := cloud.InstanceSpec{
		Name: entry.Name, Zone: entry.Zone, RequestID: entry.RequestID, MachineType: zonehistory.TypeOf(vm, entry),
		Spot:  entry.ProvisioningModel != spotv1alpha1.ProvisioningStandard,
		Image: vm.Spec.VMImage, DiskGB: int64(cmp.Or(gcp.DiskSizeGB, 100)), DiskType: cmp.Or(gcp.DiskType, "pd-standard"),
		Network: gcp.Network, Subnetwork: gcp.Subnetwork, NetworkTags: gcp.NetworkTags, ServiceAccount: gcp.ServiceAccount,
		Labels: r.ownerOf(vm).Labels(), Metadata: maps.Clone(metadata),
	}
	if gpu := vm.Spec.GPU; gpu != nil {
		spec.GPUType, spec.GPUs = gpu.Type, gpu.Count
	}
	return spec
}

// logCall logs how the provider answered a request, to create or delete, that spends or saves money: why it was sent, and when. Of requests
// that were sent before only those that are answered otherwise than before are at Info.
func (r *Reconciler) logCall(ctx context.Context, one step, what, reason string, before request, began time.Time, err error) {
	model := "spot"
	if one.entry.ProvisioningModel == spotv1alpha1.ProvisioningStandard {
		model = "on-demand"
	}
	logger := log.FromContext(ctx).WithValues("instance", one.name, "zone", one.entry.Zone, "machineType", one.machineType, "model", model,
		"reason", reason, "duration", r.Clock.Since(began).Round(time.Millisecond).String())
	if before.isSent() && cloud.ClassOf(before.err) == cloud.ClassOf(err) {
		logger = logger.V(1)
	}
	if err != nil {
		logger.Info("Failed to "+what+" instance", "class", cloud.ClassOf(err), "error", err.Error())
		return
	}
	logger.Info("Asked provider to " + what + " instance")
}
