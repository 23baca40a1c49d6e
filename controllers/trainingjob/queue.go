package trainingjob

import (
	"context"

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
