// Package reconciling has what controllers do in the same way around their plans: read the object of a request, look again in time, and
// find the objects that a change concerns.
package reconciling

import (
	"context"
	"fmt"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/internal/child"
)

// Object reads the object of a request and takes a step with it. The step returns when to reconcile again though nothing happens, 0 for
// never, also beside errors that pass by themselves. Of an object that does not exist, or is being deleted with its children, the name goes
// to gone.
func Object[T client.Object](
	ctx context.Context, from client.Reader, request ctrl.Request, object T, gone func(types.NamespacedName), step func(context.Context, T) (time.Duration, error),
) (ctrl.Result, error) {
	err := from.Get(ctx, request.NamespacedName, object)
	if apierrors.IsNotFound(err) || err == nil && object.GetDeletionTimestamp() != nil {
		if gone != nil {
			gone(request.NamespacedName)
		}
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("read the %s: %w", reflect.TypeOf(object).Elem().Name(), err)
	}
	return Result(step(ctx, object))
}

// Result of a reconciliation that returned when to reconcile again, 0 for never, and an error, which may pass by itself.
func Result(again time.Duration, err error) (ctrl.Result, error) {
	if retry, ok := child.RetryAfter(err); ok {
		again, err = Sooner(again, retry), nil
	}
	if err != nil { // which has its own backoff
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

// Doubled is the first of a row of waits, doubled with each that came before, and no longer than the longest.
func Doubled(first, longest time.Duration, before int) time.Duration {
	for range before {
		first = min(2*first, longest)
	}
	return first
}

// Sooner is the shorter of two waits, where the first may be 0 for never. A second that is over is as short as can be.
func Sooner(one, other time.Duration) time.Duration {
	if other = max(other, time.Millisecond); one == 0 || other < one {
		return other
	}
	return one
}
