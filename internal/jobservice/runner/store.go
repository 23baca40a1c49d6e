package runner

import (
	"context"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

// Watched is a store whose Dispatcher learns at once what is submitted, requeued and cancelled here, not only when it asks next.
type Watched struct {
	jobs.Store

	Dispatcher *Dispatcher
}

// Submit is that of the store.
func (w *Watched) Submit(ctx context.Context, submitted []*jobs.Job) ([]int, error) {
	positions, err := w.Store.Submit(ctx, submitted)
	if err == nil {
		for _, job := range submitted {
			if job.Executor == jobs.Kubernetes {
				w.Dispatcher.leaseFrom(job.Queue)
			}
		}
	}
	return positions, err
}

// Requeue is that of the store.
func (w *Watched) Requeue(ctx context.Context, id, by string) (jobs.Job, error) {
	job, err := w.Store.Requeue(ctx, id, by)
	if err == nil && job.Executor == jobs.Kubernetes {
		w.Dispatcher.leaseFrom(job.Queue)
	}
	return job, err
}

// Cancel is that of the store.
func (w *Watched) Cancel(ctx context.Context, id, by string) (jobs.Job, error) {
	job, err := w.Store.Cancel(ctx, id, by)
	if err == nil && job.Executor == jobs.Kubernetes {
		w.Dispatcher.cancelled(&job)
	}
	return job, err
}

// cancelled has the AIJob of a job cancelled, whichever replica has the job. Should the AIJob only be made later, the heartbeat of the
// one that makes it says so.
func (d *Dispatcher) cancelled(job *jobs.Job) {
	d.mu.Lock()
	if t, ours := d.tasks[job.ID]; ours {
		t.cancelled = true
	} else {
		d.strays[job.ID] = nameOf(job)
	}
	d.mu.Unlock()
	d.queue.Add(job.ID)
}
