package reconciling

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Named is the request for the object of a name.
func Named(namespace, name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

// ByLabel has the object reconciled that the label of another in its namespace names.
func ByLabel(label string) handler.MapFunc {
	return func(_ context.Context, object client.Object) []reconcile.Request {
		name, ok := object.GetLabels()[label]
		if !ok {
			return nil
		}
		return []reconcile.Request{Named(object.GetNamespace(), name)}
	}
}

// ByName maps a name to the object of that name.
func ByName(_ context.Context, name types.NamespacedName) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: name}}
}

// ByNames has the objects reconciled whose names, in its namespace, an object of a kind has.
func ByNames[T client.Object](names func(T) []string) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) (requests []reconcile.Request) {
		for _, name := range names(object.(T)) {
			requests = append(requests, Named(object.GetNamespace(), name))
		}
		return requests
	})
}

// Matching are requests for those objects in the cache that match; all when matches is nil. It fills the list, and logs when it cannot be read.
func Matching[T client.Object](
	ctx context.Context, from client.Reader, list client.ObjectList, matches func(T) bool, options ...client.ListOption,
) []reconcile.Request {
	options = append(options, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency)
	objects, err := List[T](ctx, from, list, options...)
	if err != nil {
		log.FromContext(ctx).Error(err, "Find the objects that a change concerns")
	}
	var found []reconcile.Request
	for _, object := range objects {
		if matches == nil || matches(object) {
			found = append(found, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(object)})
		}
	}
	return found
}

// Changed lets updates through in which two states of an object differ in what matters, and all other events.
func Changed[T client.Object](differ func(before, after T) bool) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(T)
		after, is := e.ObjectNew.(T)
		return !ok || !is || differ(before, after)
	}}
}

// Index adds an index of the objects of a kind to a cache, before it is started.
func Index[T client.Object](ctx context.Context, to client.FieldIndexer, kind T, name string, valuesOf func(T) []string) error {
	err := to.IndexField(ctx, kind, name, func(object client.Object) []string { return valuesOf(object.(T)) })
	if err != nil {
		return fmt.Errorf("index %T by %s: %w", kind, name, err)
	}
	return nil
}
