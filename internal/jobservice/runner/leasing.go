package runner

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

const (
	// leaseLimit of jobs in one request.
	leaseLimit = 100
	// idleQueue is how long a queue without jobs is asked again; then only discovery, or a job that comes in here, brings it back.
	idleQueue = 10 * time.Minute
	// fullWait is how long a request waits while all places are taken: it does not learn of those that become free.
	fullWait = time.Second
)

// discover leases from every queue that has jobs for Kubernetes.
func (d *Dispatcher) discover(ctx context.Context) {
	queues, err := d.store.Queues(ctx)
	if err != nil && ctx.Err() == nil {
		d.log.Warn("Cannot list queues with jobs", "error", err)
	}
	for _, queue := range queues {
		if queue.Depth > queue.PoolDepth || queue.Processing > queue.PoolProcessing {
			d.leaseFrom(queue.Name)
		}
	}
}

// leaseFrom a queue, unless that is done already. Before the Dispatcher runs it does nothing: discovery makes up for it.
func (d *Dispatcher) leaseFrom(queue string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.loops[queue] || d.start == nil {
		return
	}
	d.loops[queue] = true
	d.start(func(ctx context.Context) {
		d.leases(ctx, queue)
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.loops, queue)
	})
}

// leases jobs of a queue until it has had none for a while.
func (d *Dispatcher) leases(ctx context.Context, queue string) {
	last, delay := time.Now(), time.Duration(0)
	for ctx.Err() == nil && time.Since(last) < idleQueue {
		shares, full := d.shares(queue)
		wait := d.settings.LeaseWait
		if full {
			wait, last = min(wait, fullWait), time.Now()
		}
		leases, err := d.store.Lease(ctx, jobs.LeaseRequest{
			Queue: queue, Executor: jobs.Kubernetes, Worker: d.settings.Worker, Limit: leaseLimit, Wait: wait, Shares: shares,
		})
		if err != nil {
			if ctx.Err() != nil {
				return
			}
			delay = min(max(2*delay, 250*time.Millisecond), 15*time.Second)
			d.log.Warn("Cannot lease jobs", "queue", queue, "error", err, "again_in", delay)
			pause(ctx, delay)
			continue
		}
		delay = 0
		for _, lease := range leases {
			d.take(lease)
		}
		if len(leases) > 0 {
			last = time.Now()
		}
	}
}

func pause(ctx context.Context, delay time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(delay):
	}
}

// beats is how many heartbeats are under way at a time: the store commits those together that come together.
const beats = 64

// due are the tasks whose lease has lasted for a third of its time.
func (d *Dispatcher) due() []task {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	var due []task
	for _, t := range d.tasks {
		if now.Sub(t.renewed) >= t.visibility/3 {
			due = append(due, *t)
		}
	}
	return due
}

// renewDue leases. It stops when the store cannot be reached, and is called again soon.
func (d *Dispatcher) renewDue(ctx context.Context) {
	due := d.due()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(beats)
	for _, t := range due {
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error { return d.heartbeat(ctx, t) })
	}
	if err := group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		d.log.Warn("Cannot renew leases", "error", err, "leases", len(due))
	}
}

func (d *Dispatcher) heartbeat(ctx context.Context, t task) error {
	began := time.Now()
	_, cancelled, err := d.store.Heartbeat(ctx, t.job.ID, t.fence)
	switch {
	case lost(err):
		// Another replica has it, or it has ended: in the latter case the sweep sees to what is left.
		d.log.Info("Lease lost", "job", t.job.ID, "error", err)
		d.forget(t.job.ID, t.fence)
	case err != nil:
		return err
	case cancelled:
		d.change(t.job.ID, t.fence, func(t *task) { t.cancelled = true })
		d.queue.Add(t.job.ID)
	default:
		d.change(t.job.ID, t.fence, func(t *task) { t.renewed = began })
	}
	return nil
}

// lost says whether the job is no longer this lease's.
func lost(err error) bool {
	return errors.Is(err, jobs.ErrLeaseLost) || errors.Is(err, jobs.ErrNotFound) || errors.Is(err, jobs.ErrEnded)
}
