package trainingjob

import (
	"context"
	"sync"

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

// restAtOnce is how many jobs get, at the same time, what their pods do not wait for. In a burst of new jobs more would
// take the API server's time from the creation of pods.
const restAtOnce = 2

// lacksRest says whether the workers exist and something beside them does not.
func (o observed) lacksRest() bool {
	return o.workers != nil && (o.headless == nil || o.master == nil || o.config == nil)
}

// turns lets restAtOnce jobs do something at the same time; the others wait.
type turns struct {
	once  sync.Once
	taken chan struct{}
}

// take waits for a turn, which ends with a call of the function that it returns.
func (t *turns) take(ctx context.Context) (end func(), err error) {
	t.once.Do(func() { t.taken = make(chan struct{}, restAtOnce) })
	select {
	case t.taken <- struct{}{}:
		return func() { <-t.taken }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
