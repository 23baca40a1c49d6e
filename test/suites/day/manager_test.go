package day

import (
	"container/heap"
	"context"
	"fmt"
	"reflect"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// simulated is a manager whose controllers wait by the virtual clock.
type simulated struct {
	manager.Manager

	world *world
	queue *queue
}

// Add has a controller's waits and retries go by the virtual clock: controller-runtime's own queue knows the real one
// only, and offers no other way in.
func (m simulated) Add(runnable manager.Runnable) error {
	added, ok := runnable.(controller.TypedController[reconcile.Request])
	if !ok {
		return m.Manager.Add(runnable)
	}
	do := reflect.ValueOf(runnable).Elem().FieldByName("Do")
	inner, ok := do.Interface().(reconcile.TypedReconciler[reconcile.Request])
	if !ok {
		return fmt.Errorf("controller-runtime keeps the reconciler of %T elsewhere", runnable)
	}
	paced := &paced{inner: inner, world: m.world, queue: m.queue, wake: make(chan event.TypedGenericEvent[reconcile.Request], 4096)}
	do.Set(reflect.ValueOf(reconcile.TypedReconciler[reconcile.Request](paced)))
	again := handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, r reconcile.Request) []reconcile.Request {
		return []reconcile.Request{r}
	})
	if err := added.Watch(source.TypedChannel(paced.wake, again)); err != nil {
		return err
	}
	return m.Manager.Add(runnable)
}

// paced is a reconciler whose waits go by the virtual clock.
type paced struct {
	inner reconcile.Reconciler
	world *world
	queue *queue
	wake  chan event.TypedGenericEvent[reconcile.Request]

	mu       sync.Mutex
	failures map[reconcile.Request]int
}

func (p *paced) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	defer p.world.activity.begin()()
	result, err := p.inner.Reconcile(ctx, request)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failures == nil {
		p.failures = map[reconcile.Request]int{}
	}
	if err != nil {
		if ctx.Err() == nil {
			p.world.noteError(fmt.Sprintf("%T %s: %v", p.inner, request, err))
		}
		p.failures[request]++
		p.queue.add(p, request, time.Second<<min(p.failures[request], 9))
		return reconcile.Result{}, nil
	}
	delete(p.failures, request)
	if result.RequeueAfter > 0 {
		p.queue.add(p, request, result.RequeueAfter)
	}
	return reconcile.Result{}, nil
}

// queue is what is to be reconciled later.
type queue struct {
	world *world
	mu    sync.Mutex
	due   dues
	known map[dueKey]time.Time
}

type dueKey struct {
	who     *paced
	request reconcile.Request
}

type due struct {
	dueKey
	at time.Time
}

func newQueue(w *world) *queue { return &queue{world: w, known: map[dueKey]time.Time{}} }

func (q *queue) add(who *paced, request reconcile.Request, after time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	key, at := dueKey{who, request}, q.world.clock.Now().Add(after)
	if known, ok := q.known[key]; ok && !known.After(at) {
		return
	}
	q.known[key] = at
	heap.Push(&q.due, due{key, at})
}

func (q *queue) next() (time.Time, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.due) == 0 {
		return time.Time{}, false
	}
	return q.due[0].at, true
}

// release has reconciled what is due.
func (q *queue) release(now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.due) > 0 && !q.due[0].at.After(now) {
		one := heap.Pop(&q.due).(due)
		if at, ok := q.known[one.dueKey]; !ok || at.After(one.at) || at.Before(one.at) {
			continue
		}
		delete(q.known, one.dueKey)
		select {
		case one.who.wake <- event.TypedGenericEvent[reconcile.Request]{Object: one.request}:
		default:
			q.world.noteError("more is due at once than the queue holds")
		}
	}
}

type dues []due

func (d dues) Len() int           { return len(d) }
func (d dues) Less(i, j int) bool { return d[i].at.Before(d[j].at) }
func (d dues) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }
func (d *dues) Push(x any)        { *d = append(*d, x.(due)) }
func (d *dues) Pop() any {
	last := len(*d) - 1
	x := (*d)[last]
	*d = (*d)[:last]
	return x
}
