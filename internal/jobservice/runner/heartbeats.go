package runner

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

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
