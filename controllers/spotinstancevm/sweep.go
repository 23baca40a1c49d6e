package spotinstancevm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/cloud"
	"github.com/dcnlab/spot-training-operator/internal/cloud/inventory"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
)

// sweepAgain is when to look whether an orphan is gone, and to delete it again if it is not.
const sweepAgain = 30 * time.Second

// sweep deletes instances whose labels name this SpotInstanceVM with another UID than that of the one that exists; uid is
// empty when none does. Every list of a zone brings them here. It returns when to look again; 0 when there are none.
func (r *Reconciler) sweep(ctx context.Context, vm types.NamespacedName, uid types.UID) (time.Duration, error) {
	var found []inventory.Found
	for _, one := range r.inventories.Of(vm) {
		if one.Owner.UID != uid {
			found = append(found, one)
		}
	}
	if len(found) == 0 {
		return 0, nil
	}
	exists, err := reconciling.Get[spotv1alpha1.SpotInstanceVM](ctx, r.Direct, vm.Namespace, vm.Name) // the cache may be late
	if err != nil {
		return 0, err
	}
	var failures []error
	for _, one := range found {
		if _, deleted := r.orphans.Get(one.ID); deleted || one.State == "STOPPING" || exists != nil && one.Owner.UID == exists.UID {
			continue
		}
		r.orphans.Set(one.ID, true, sweepAgain)
		began := r.Clock.Now()
		_, err := deleteOwn(ctx, one.In.Provider(), one.Zone, one.ID, one.Owner)
		r.logCall(ctx, step{action: action{actDelete, one.Name}, entry: entryOfFound(one), machineType: one.MachineType},
			"delete", "its SpotInstanceVM (UID "+string(one.Owner.UID)+") does not exist", request{}, began, err)
		if err != nil && cloud.ClassOf(err) != cloud.NotFound {
			failures = append(failures, fmt.Errorf("delete orphan %s in zone %s: %w", one.Name, one.Zone, err))
			continue
		}
		r.Metrics.Orphaned(one.Zone)
	}
	return sweepAgain, errors.Join(failures...)
}
