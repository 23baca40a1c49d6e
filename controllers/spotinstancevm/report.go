package spotinstancevm

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/child"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
)

// report writes what the plan intends before anything is asked of the provider: first the finalizers, so that the
// SpotInstanceVM and the Secret of its credentials stay while it has instances, then the status, which names each of them. In the end it is
// the other way round: with an instance in the status and no credentials nothing could be found out any more. It returns the object as it
// is then.
func (r *Reconciler) report(ctx context.Context, o observed, d *desired) (*spotv1alpha1.SpotInstanceVM, error) {
	if !d.finalizer {
		vm, err := r.writeStatus(ctx, o.vm, d)
		if err != nil {
			return nil, err
		}
		o.vm = vm
		return r.writeFinalizers(ctx, o, d)
	}
	vm, err := r.writeFinalizers(ctx, o, d)
	if err != nil {
		return nil, err
	}
	return r.writeStatus(ctx, vm, d)
}

// writeStatus writes the status if it has changed; of one that goes, only that there are no instances.
func (r *Reconciler) writeStatus(ctx context.Context, vm *spotv1alpha1.SpotInstanceVM, d *desired) (*spotv1alpha1.SpotInstanceVM, error) {
	if d.release && len(vm.Status.ProvisionedInstances) == 0 || equality.Semantic.DeepEqual(&vm.Status, &d.status) {
		return vm, nil
	}
	next := vm.DeepCopy()
	next.Status = *d.status.DeepCopy()
	if err := reporting.Patch(ctx, r, vm, next); err != nil {
		return nil, err
	}
	reporting.Tell(ctx, r.Recorder, next, reporting.Transition{Before: vm.Status.Conditions, After: next.Status.Conditions}, d.events...)
	for _, count := range d.counts {
		count(r.Metrics)
	}
	return next, nil
}

// writeFinalizers has the SpotInstanceVM stay, and the Secret of its credentials. Which Secret has a finalizer is written on the
// SpotInstanceVM before, so that it is removed when another one takes over.
func (r *Reconciler) writeFinalizers(ctx context.Context, o observed, d *desired) (*spotv1alpha1.SpotInstanceVM, error) {
	vm, before := o.vm, o.vm.Annotations[spotv1alpha1.AnnotationCredentialsSecret]
	name, unneeded := client.ObjectKeyFromObject(vm), []string{}
	if before != "" && before != d.secret {
		unneeded = append(unneeded, before)
	}
	if o.kept && o.secret != before && o.secret != d.secret { // one of the same name left it
		unneeded = append(unneeded, o.secret)
	}
	if err := r.releaseSecrets(ctx, name, unneeded); err != nil {
		return nil, err
	}
	next, changed := vm.DeepCopy(), before != d.secret
	if d.secret == "" {
		delete(next.Annotations, spotv1alpha1.AnnotationCredentialsSecret)
	} else {
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, spotv1alpha1.AnnotationCredentialsSecret, d.secret)
	}
	if d.finalizer && vm.DeletionTimestamp == nil {
		changed = controllerutil.AddFinalizer(next, spotv1alpha1.FinalizerInstances) || changed
	}
	if changed {
		if err := r.Patch(ctx, next, lock(vm), child.FieldOwner); err != nil {
			return nil, fmt.Errorf("write the finalizer: %w", err)
		}
		vm = next
	}
	if d.secret == "" || o.kept || o.access.exists() {
		return vm, nil
	}
	if !changed {
		// One that has just started may read it from a cache that is behind, and its instances may be gone: nothing would let the Secret go.
		if err := reconciling.Confirm(ctx, r.Direct, vm); err != nil {
			return nil, err
		}
	}
	r.memory.edit(vm.UID, func(m *vmMemo) { m.name, m.secret = name, d.secret }) // nothing else tells once the SpotInstanceVM is gone
	return vm, r.keepSecret(ctx, name, d.secret)
}

// release lets a SpotInstanceVM go that has no more instances.
func (r *Reconciler) release(ctx context.Context, vm *spotv1alpha1.SpotInstanceVM) error {
	next := vm.DeepCopy()
	controllerutil.RemoveFinalizer(next, spotv1alpha1.FinalizerInstances)
	if err := client.IgnoreNotFound(r.Patch(ctx, next, lock(vm), child.FieldOwner)); err != nil {
		return fmt.Errorf("remove the finalizer: %w", err)
	}
	return nil
}

// lock makes sure that a decision is made from the newest status: an instance must not be planned twice.
func lock(vm *spotv1alpha1.SpotInstanceVM) client.Patch {
	return client.MergeFromWithOptions(vm, client.MergeFromWithOptimisticLock{})
}
