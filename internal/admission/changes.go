package admission

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// news are a source of requests for a controller. They go into the controller's own queue, which takes any number without
// blocking and each but once.
type news struct {
	after  time.Duration // to wait for more of the same
	mutex  sync.Mutex
	queues []workqueue.TypedRateLimitingInterface[reconcile.Request]
	early  map[reconcile.Request]bool // before there was a queue
}

func (n *news) source() source.Source {
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

func (n *news) tell(namespace, name string) {
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
		queue.AddAfter(request, n.after)
	}
}
