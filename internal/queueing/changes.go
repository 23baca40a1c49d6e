package queueing

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// notifier is a source of requests for a controller. They go into the controller's own queue, which takes any number without blocking and
// each only once.
type notifier struct {
	after  time.Duration // to wait for more of the same
	mutex  sync.Mutex
	queues []workqueue.TypedRateLimitingInterface[reconcile.Request]
	early  map[reconcile.Request]bool // before there was a queue
}

// Priorities of requests in the queue of a controller of jobs, where others have 0: who has or loses a place goes first, who waits on last.
const (
	decidedPriority = 10
	WaitsPriority   = -10
)

func (n *notifier) source() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		n.mutex.Lock()
		defer n.mutex.Unlock()
		n.queues = append(n.queues, queue)
		for request := range n.early {
			queue.AddAfter(request, n.after)
		}
		n.early = nil
		return nil
	})
}

func (n *notifier) tell(namespace, name string) { n.tellWith(namespace, name, 0) }

// tellWith tells with a priority, when the controller's queue knows of any.
func (n *notifier) tellWith(namespace, name string, priority int) {
	request := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if len(n.queues) == 0 {
		if n.early == nil {
			n.early = map[reconcile.Request]bool{}
		}
		n.early[request] = true
	}
	for _, queue := range n.queues {
		if ranked, ok := queue.(priorityqueue.PriorityQueue[reconcile.Request]); ok && priority != 0 {
			ranked.AddWithOpts(priorityqueue.AddOpts{After: n.after, Priority: &priority}, request)
			continue
		}
		queue.AddAfter(request, n.after)
	}
}
