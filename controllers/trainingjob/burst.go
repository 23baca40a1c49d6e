package trainingjob

import (
	"context"
	"sync"
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

// turn lets one job after another do something. In a burst of new jobs it leaves the API server's time to the creation
// of pods. A job that waits too long for its turn continues without one, so that a slow request delays no other job for long.
type turn struct {
	once  sync.Once
	taken chan struct{}
}

// take waits for the turn, which ends with a call of the function that it returns.
func (t *turn) take(ctx context.Context) (end func()) {
	t.once.Do(func() { t.taken = make(chan struct{}, 1) })
	ctx, cancel := context.WithTimeout(ctx, restPatience)
	defer cancel()
	select {
	case t.taken <- struct{}{}:
		return func() { <-t.taken }
	case <-ctx.Done():
		return func() {}
	}
}
