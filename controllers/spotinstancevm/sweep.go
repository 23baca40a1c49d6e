package spotinstancevm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/cloud"
	"github.com/dcnlab/spot-training-operator/internal/cloud/inventory"
)

// sweepAgain is when to look whether an orphan is gone, and to delete it again if it is not.
const sweepAgain = 30 * time.Second

// orphans remembers which instances without an owner were deleted, and when.
type orphans struct {
	mu      sync.Mutex
	deleted map[string]time.Time
}

// shouldDelete says whether to delete an orphan now, and notes it.
func (o *orphans) shouldDelete(name string, now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if at, ok := o.deleted[name]; ok && now.Sub(at) < sweepAgain {
		return false
	}
	if o.deleted == nil {
		o.deleted = map[string]time.Time{}
	}
	maps.DeleteFunc(o.deleted, func(_ string, at time.Time) bool { return now.Sub(at) > time.Hour })
	o.deleted[name] = now
	return true
}

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
	exists, err := r.uidOf(ctx, vm) // the cache may be late
	if err != nil {
		return 0, err
	}
	var failures []error
	for _, one := range found {
		gone := one.State == "STOPPING" || one.Owner.UID == exists
		if gone || !r.orphans.shouldDelete(one.Zone+"/"+one.Name, r.Clock.Now()) {
			continue
		}
		began := r.Clock.Now()
		_, err := one.In.Provider().Delete(ctx, one.Zone, one.Name, string(uuid.NewUUID()))
		r.logCall(ctx, call{
			what: "delete", instance: one.Name, zone: one.Zone, machineType: one.MachineType, spot: one.Spot, began: began,
			reason: "its SpotInstanceVM (UID " + string(one.Owner.UID) + ") does not exist",
		}, err)
		if err != nil && cloud.ClassOf(err) != cloud.NotFound {
			failures = append(failures, fmt.Errorf("delete orphan %s in zone %s: %w", one.Name, one.Zone, err))
			continue
		}
		r.Metrics.Orphaned(one.Zone)
	}
	return sweepAgain, errors.Join(failures...)
}

// uidOf reads the UID of a SpotInstanceVM from the API server; empty when there is none.
func (r *Reconciler) uidOf(ctx context.Context, vm types.NamespacedName) (types.UID, error) {
	var is spotv1alpha1.SpotInstanceVM
	err := r.Direct.Get(ctx, vm, &is)
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the SpotInstanceVM %s: %w", vm, err)
	}
	return is.UID, nil
}
