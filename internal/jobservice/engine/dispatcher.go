package engine

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/redisqueue"
)

// dispatcher has the workers that wait for tasks, and fetches tasks for all who wait for the same at once.
type dispatcher struct {
	store  *Store
	mutex  sync.Mutex
	groups map[groupKey]*group
}

type groupKey struct {
	queue    string
	executor jobs.Executor
	types    string
	// own is set for one who is asked for alone, because it has shares of its own.
	own *waiter
}

// group of workers that want the same.
type group struct {
	key     groupKey
	types   []string
	waiting []*waiter
	// fetching: a goroutine asks Redis. again: something may have come since it asked.
	fetching, again bool
}

// waiter is one call of Lease.
type waiter struct {
	request jobs.LeaseRequest
	key     groupKey
	until   time.Time
	answer  chan answer
	// assigned: it cannot be withdrawn at the moment. Guarded by the dispatcher's mutex.
	assigned bool
}

type answer struct {
	leases []jobs.Lease
	err    error
}

func newWaiter(request jobs.LeaseRequest) *waiter {
	types := slices.Clone(request.Types)
	slices.Sort(types)
	w := &waiter{
		request: request,
		key:     groupKey{queue: request.Queue, executor: request.Executor, types: strings.Join(slices.Compact(types), "/")},
		until:   time.Now().Add(request.Wait),
		answer:  make(chan answer, 1),
	}
	if request.Shares != nil {
		w.key.own = w
	}
	return w
}

func newDispatcher(s *Store) *dispatcher { return &dispatcher{store: s, groups: map[groupKey]*group{}} }

func (d *dispatcher) add(w *waiter) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.insert(w, false)
}

func (d *dispatcher) insert(w *waiter, first bool) {
	g := d.groups[w.key]
	if g == nil {
		g = &group{key: w.key}
		if w.key.types != "" {
			g.types = strings.Split(w.key.types, "/")
		}
		d.groups[w.key] = g
	}
	w.assigned = false
	if first {
		g.waiting = slices.Insert(g.waiting, 0, w)
	} else {
		g.waiting = append(g.waiting, w)
	}
	d.poke(g)
}

// poke lets a group ask Redis.
func (d *dispatcher) poke(g *group) {
	g.again = true
	if !g.fetching && len(g.waiting) > 0 {
		g.fetching = true
		go d.fetch(g)
	}
}

// withdraw takes a waiter away, and says whether it could: else an answer is on its way.
func (d *dispatcher) withdraw(w *waiter) bool {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if w.assigned || len(w.answer) > 0 {
		return false
	}
	if g := d.groups[w.key]; g != nil {
		g.waiting = slices.DeleteFunc(g.waiting, func(other *waiter) bool { return other == w })
		d.drop(g)
	}
	return true
}

// drop forgets an unused group.
func (d *dispatcher) drop(g *group) {
	if len(g.waiting) == 0 && !g.fetching {
		delete(d.groups, g.key)
	}
}

// fetch asks Redis until no worker waits or nothing is there.
func (d *dispatcher) fetch(g *group) {
	for {
		d.mutex.Lock()
		if !g.again || len(g.waiting) == 0 || d.store.ctx.Err() != nil {
			g.fetching = false
			d.drop(g)
			d.mutex.Unlock()
			return
		}
		g.again = false
		chosen, wanted := choose(g.waiting)
		g.waiting = g.waiting[len(chosen):]
		for _, w := range chosen {
			w.assigned = true
		}
		d.mutex.Unlock()

		ctx, cancel := context.WithTimeout(d.store.ctx, d.store.options.OperationTimeout)
		held, over, epoch, err := d.take(ctx, g, wanted)
		cancel()
		d.store.redisFailed(err) // who waits is asked for again when Redis is back

		shares := share(held, chosen)
		d.mutex.Lock()
		left := chosen[len(shares):]
		for _, w := range left {
			w.assigned = false
		}
		g.waiting = append(slices.Clone(left), g.waiting...)
		if len(held) == wanted {
			g.again = true
		}
		d.mutex.Unlock()
		for i, some := range shares {
			d.store.grants.add(newAllotment(chosen[i], some, over, epoch))
		}
	}
}

// take asks Redis for tasks of a group.
func (d *dispatcher) take(ctx context.Context, g *group, wanted int) (held []redisqueue.Held, over time.Time, epoch string, err error) {
	visibility := d.store.options.Visibility
	if g.key.executor != jobs.Kubernetes {
		return d.store.queue.Lease(ctx, g.key.queue, g.key.executor, g.types, wanted, visibility)
	}
	var shares []jobs.Share
	if g.key.own != nil {
		shares = g.key.own.request.Shares
	}
	return d.store.queue.LeaseInTurns(ctx, g.key.queue, g.types, wanted, visibility, shares)
}

// choose takes waiters from the front, and says how many tasks they want.
func choose(waiting []*waiter) (chosen []*waiter, wanted int) {
	for i, w := range waiting {
		if wanted += w.request.Limit; wanted >= 256 || i == 255 {
			return slices.Clone(waiting[:i+1]), wanted
		}
	}
	return slices.Clone(waiting), wanted
}

// share gives each of the first waiters its part, as even as their limits allow: a worker that wants many must not leave the others
// without. Each share has at least one.
func share(held []redisqueue.Held, waiting []*waiter) [][]redisqueue.Held {
	n := min(len(held), len(waiting))
	sizes := make([]int, n)
	for left := len(held); left > 0; {
		given := left
		for i := range sizes {
			if left > 0 && sizes[i] < waiting[i].request.Limit {
				sizes[i]++
				left--
			}
		}
		if given == left {
			break // cannot be: no more was asked for than they want
		}
	}
	shares := make([][]redisqueue.Held, n)
	for i, size := range sizes {
		shares[i], held = held[:size:size], held[size:]
	}
	return shares
}

// give answers a waiter; one for whom SQL left nothing waits on.
func (d *dispatcher) give(w *waiter, leases []jobs.Lease) {
	if len(leases) == 0 && time.Now().Before(w.until) {
		d.mutex.Lock()
		defer d.mutex.Unlock()
		d.insert(w, true)
		return
	}
	w.answer <- answer{leases: leases}
}

// wake lets those ask Redis who wait for a queue.
func (d *dispatcher) wake(executor jobs.Executor, name string) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	for key, g := range d.groups {
		if key.queue == name && key.executor == executor {
			d.poke(g)
		}
	}
}

func (d *dispatcher) wakeFor(entries []redisqueue.Entry) {
	woken := map[groupKey]bool{}
	for _, e := range entries {
		key := groupKey{queue: e.Queue, executor: e.Executor}
		if e.Due.IsZero() && !woken[key] {
			woken[key] = true
			d.wake(e.Executor, e.Queue)
		}
	}
}

func (d *dispatcher) wakeAll(context.Context) bool {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	for _, g := range d.groups {
		d.poke(g)
	}
	return false
}
