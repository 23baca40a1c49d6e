package reconciling

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// First enqueues requests with a priority, before those with a lower one; that of others is 0.
func First(priority int, requests handler.MapFunc) handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	add := func(ctx context.Context, object client.Object, to queue) {
		if prioritized, ok := to.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
			prioritized.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, requests(ctx, object)...)
			return
		}
		for _, request := range requests(ctx, object) {
			to.Add(request)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, to queue) { add(ctx, e.Object, to) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, to queue) { add(ctx, e.ObjectNew, to) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, to queue) { add(ctx, e.Object, to) },
	}
}
