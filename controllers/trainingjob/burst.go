package trainingjob

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// newJobsFirst enqueues TrainingJobs, those that were just created before all others.
type newJobsFirst struct {
	handler.EnqueueRequestForObject
}

// Create implements handler.EventHandler.
func (n *newJobsFirst) Create(ctx context.Context, created event.CreateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	prioritized, ok := queue.(priorityqueue.PriorityQueue[reconcile.Request])
	if !ok || created.IsInInitialList || created.Object == nil {
		n.EnqueueRequestForObject.Create(ctx, created, queue)
		return
	}
	prioritized.AddWithOpts(priorityqueue.AddOpts{Priority: ptr.To(firstStart)},
		reconcile.Request{NamespacedName: client.ObjectKeyFromObject(created.Object)})
}

// restPatience is how long a job waits for its turn to get what its pods do not wait for.
const restPatience = 2 * time.Second

// takeTurn waits for the turn to do something that one job after another does, which ends with a call of the function that it returns. In a
// burst of new jobs that leaves the API server's time to the creation of pods. A job that waits too long for its turn continues without
// one, so that a slow request delays no other job for long.
func (r *Reconciler) takeTurn(ctx context.Context) (end func()) {
	ctx, cancel := context.WithTimeout(ctx, restPatience)
	defer cancel()
	select {
	case r.turn <- struct{}{}:
		return func() { <-r.turn }
	case <-ctx.Done():
		return func() {}
	}
}
