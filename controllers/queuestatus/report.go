package queuestatus

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/internal/child"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
)

// figuresInterval is how far apart the figures in a status are written while they change all the time.
const figuresInterval = 3 * time.Second

// reporter writes statuses with figures that change all the time.
type reporter struct{ reporting.Pacer }

// read reads an object whose status is to be written; false when it is gone or going.
func (r *reporter) read(ctx context.Context, from client.Reader, key client.ObjectKey, object client.Object) (bool, error) {
	found, err := child.Find(ctx, from, key, object)
	if !found && err == nil {
		r.Forget(key)
	}
	return found && object.GetDeletionTimestamp() == nil, err
}

// report writes the status of an object when it changed: at once when that is urgent, and else at most every few seconds. The result says
// when to reconcile again.
func (r *reporter) report(
	ctx context.Context, c client.StatusClient, before, after client.Object, t reporting.Transition, urgent bool, now time.Time,
) (ctrl.Result, error) {
	if equality.Semantic.DeepEqual(before, after) {
		return ctrl.Result{}, nil
	}
	key := client.ObjectKeyFromObject(before)
	if wait := r.Wait(key, figuresInterval, now); wait > 0 && !urgent {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	err := reporting.Patch(ctx, c, before, after)
	if again, ok := child.RetryAfter(err); ok {
		return ctrl.Result{RequeueAfter: again}, nil
	}
	if err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	r.Wrote(key, now)
	reporting.Tell(ctx, nil, before, t)
	return ctrl.Result{}, nil
}
