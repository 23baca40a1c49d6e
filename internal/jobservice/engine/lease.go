package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/redisqueue"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/sqlstore"
)

// Lease waits up to request.Wait for tasks.
func (s *Store) Lease(ctx context.Context, request jobs.LeaseRequest) (leases []jobs.Lease, err error) {
	span := startSpan(ctx, "lease", attribute.String("queue", request.Queue))
	defer func() {
		span.SetAttributes(attribute.Int("leases", len(leases)))
		endSpan(span, err)
	}()
	request.Worker, request.Limit = clean(request.Worker), min(max(request.Limit, 1), 1000)
	w := newWaiter(request)
	// Without a wait, the answer comes as soon as Redis was asked once.
	timer := time.NewTimer(max(request.Wait, 200*time.Millisecond))
	defer timer.Stop()
	s.leases.add(w)
	select {
	case answer := <-w.answer:
		return answer.leases, answer.err
	case <-ctx.Done():
	case <-s.ctx.Done():
	case <-timer.C:
	}
	if s.leases.withdraw(w) {
		if s.queue.Epoch() == "" {
			return nil, fmt.Errorf("the queue: %w", jobs.ErrUnavailable)
		}
		return nil, ctx.Err()
	}
	return s.leased(ctx, w)
}

// leased waits for grants that are already being written for the worker; they would be lost until their leases expire otherwise.
func (s *Store) leased(ctx context.Context, w *waiter) ([]jobs.Lease, error) {
	last := time.NewTimer(2 * s.options.OperationTimeout)
	defer last.Stop()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		select {
		case answer := <-w.answer:
			if ctx.Err() != nil && len(answer.leases) > 0 {
				s.giveBack(answer.leases)
				return nil, ctx.Err()
			}
			return answer.leases, answer.err
		case <-again.C: // it was nothing
			if s.leases.withdraw(w) {
				return nil, ctx.Err()
			}
		case <-last.C:
			go func() {
				select {
				case answer := <-w.answer:
					s.giveBack(answer.leases)
				case <-s.ctx.Done():
				}
			}()
			return nil, fmt.Errorf("the lease: %w", jobs.ErrUnavailable)
		case <-s.ctx.Done():
			return nil, fmt.Errorf("the service ends: %w", jobs.ErrUnavailable)
		}
	}
}

// giveBack puts leased jobs back whose worker has gone; no try is lost by that. It waits for the database: who closes the Store after the
// last call has returned must not cut it off.
func (s *Store) giveBack(leases []jobs.Lease) {
	operations := make([]*operation, 0, len(leases))
	for _, lease := range leases {
		o := &operation{ticket: s.newTicket(context.Background(), "give back"), id: lease.Job.ID, apply: giveBack(lease.Fence)}
		operations = append(operations, o)
		s.changes.add(o)
	}
	for _, o := range operations {
		if err := o.wait(); err != nil {
			s.options.Logger.Error(err, "Cannot release a lease; it is released when it expires", "job", o.id)
		}
	}
}

// allotment are jobs that Redis gave for a waiter, and SQL must know as leased before it gets them.
type allotment struct {
	waiter *waiter
	held   []redisqueue.Held
	ids    []int64 // of the grants
	over   time.Time
	epoch  string

	leases []jobs.Lease
	waits  []time.Duration
}

func newAllotment(w *waiter, held []redisqueue.Held, over time.Time, epoch string) *allotment {
	a := &allotment{waiter: w, held: held, over: over, epoch: epoch}
	for range held {
		a.ids = append(a.ids, 1+rand.Int64N(1<<62)) //nolint:gosec // tells leases apart; the worker's token gives the right
	}
	return a
}

func (*allotment) claim() bool { return true }

func (s *Store) flushGrants(batch []*allotment) {
	byEpoch := map[string][]*allotment{}
	for _, a := range batch {
		byEpoch[a.epoch] = append(byEpoch[a.epoch], a)
	}
	for epoch, some := range byEpoch {
		s.grantAll(epoch, some)
	}
}

func (s *Store) grantAll(epoch string, batch []*allotment) {
	change := sqlstore.Change{Epoch: epoch, Delivered: s.delivered.take()}
	for _, a := range batch {
		for _, h := range a.held {
			change.IDs = append(change.IDs, h.ID)
		}
	}
	now := moment()
	var ended []redisqueue.Held
	err := persist(s.ctx, now, s.options.OperationTimeout, func(ctx context.Context, _ bool) error {
		change.Decide = func(rows map[string]*sqlstore.Row) (changed []*sqlstore.Row, _ sqlstore.Outbox) {
			ended = ended[:0]
			for _, a := range batch {
				changed = append(changed, a.decide(rows, now, s.options.Visibility, &ended)...)
			}
			return changed, sqlstore.Outbox{}
		}
		return s.db.Change(ctx, change)
	})
	if err != nil {
		s.delivered.add(change.Delivered)
		if errors.Is(err, sqlstore.ErrEpoch) { // only the queue was renewed: they wait on
			s.redisFailed(redisqueue.ErrStale)
			for _, a := range batch {
				s.leases.give(a.waiter, nil)
			}
			return
		}
		s.options.Logger.Error(err, "Cannot write leases; they are released when they expire")
		for _, a := range batch {
			a.waiter.answer <- answer{err: err}
		}
		return
	}
	for _, a := range batch {
		for i, lease := range a.leases {
			s.figures.dispatched(&lease.Job, a.waits[i])
		}
		s.leases.give(a.waiter, a.leases)
	}
	if len(ended) > 0 {
		s.deliver(func() { s.forget(ended) })
	}
}

func (a *allotment) decide(rows map[string]*sqlstore.Row, now time.Time, visibility time.Duration, ended *[]redisqueue.Held) (changed []*sqlstore.Row) {
	a.leases, a.waits = nil, nil
	for i, h := range a.held {
		row := rows[h.ID]
		if row == nil || row.Status.Ended() {
			*ended = append(*ended, h)
			continue
		}
		granted, write := grant(row, h.Fence, a.ids[i], a.waiter.request.Worker, now)
		if write {
			changed = append(changed, row)
		}
		if granted {
			a.leases = append(a.leases, jobs.Lease{Job: row.Job, Fence: row.Fence, ExpiresAt: a.over, Visibility: visibility})
			a.waits = append(a.waits, max(0, now.Sub(row.QueuedAt)))
		}
	}
	return changed
}

// Heartbeat keeps a lease, and says whether the job should stop.
func (s *Store) Heartbeat(ctx context.Context, id string, fence int64) (time.Time, bool, error) {
	id = strings.ToLower(id)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.options.OperationTimeout)
	defer cancel()
	for {
		over, cancelled, err := s.heartbeat(ctx, id, fence)
		if !errors.Is(err, redisqueue.ErrStale) {
			return over, cancelled, err
		}
		attached := func(context.Context) (bool, error) { return s.queue.Epoch() != "", nil }
		if wait.PollUntilContextCancel(ctx, 10*time.Millisecond, false, attached) != nil {
			return time.Time{}, false, fmt.Errorf("the queue: %w", jobs.ErrUnavailable)
		}
	}
}

func (s *Store) heartbeat(ctx context.Context, id string, fence int64) (time.Time, bool, error) {
	over, err := s.queue.Heartbeat(ctx, redisqueue.Held{ID: id, Fence: fence}, s.options.Visibility)
	if err != nil {
		s.redisFailed(err)
		return time.Time{}, false, stale(err)
	}
	if !over.IsZero() {
		return over, false, nil
	}
	// Redis does not know it: it was cancelled, is over, or Redis has lost it.
	row, err := s.held(ctx, id, fence)
	if err != nil || row == nil {
		return time.Now(), err == nil, err
	}
	if over, err = s.queue.Adopt(ctx, redisqueue.EntryOf(&row.Job), s.options.Visibility); err != nil {
		s.redisFailed(err)
		return time.Time{}, false, stale(err)
	}
	if over.IsZero() {
		return time.Time{}, false, jobs.ErrLeaseLost
	}
	// SQL may have taken it back before Redis took it up.
	row, err = s.held(ctx, id, fence)
	return over, err == nil && row == nil, err
}

// stale makes one of the errors after which Redis is brought back.
func stale(err error) error {
	if errors.Is(err, jobs.ErrUnavailable) {
		return redisqueue.ErrStale
	}
	return err
}

// held returns the job that is leased under a fence; nil: it was cancelled.
func (s *Store) held(ctx context.Context, id string, fence int64) (*sqlstore.Row, error) {
	rows, err := s.db.Get(ctx, []string{id})
	if err != nil {
		return nil, err
	}
	row := rows[id]
	if row != nil && row.Status == jobs.Cancelled && row.Fence == fence {
		return nil, nil
	}
	return row, holds(row, fence)
}
