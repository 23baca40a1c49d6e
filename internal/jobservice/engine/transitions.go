package engine

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/sqlstore"
)

// effect is what Redis must learn after a change.
type effect int

const (
	none    effect = iota
	enqueue        // the job waits
	remove         // the job has ended
)

// transition decides on a locked row how it changes; the row is its to change. again: the transaction is tried again, its first try
// may have been done. changed rows are written.
type transition func(row *sqlstore.Row, again bool) (changed bool, then effect, err error)

// grant leases a job to a worker unless it is leased. granted says whether it did.
func grant(row *sqlstore.Row, fence, leaseID int64, worker string, now time.Time) (granted, changed bool) {
	switch {
	case row.LeaseID == leaseID: // by the first try of this transaction
		return true, false
	case row.Status.Ended(), row.Leased(), row.Fence >= fence:
		return false, false
	}
	row.Fence, row.LeaseID, row.WorkerID, row.NextRetryAt = fence, leaseID, worker, time.Time{}
	if row.Executor == jobs.Pool { // of others, Phase says how far they are
		row.Status, row.StartedAt = jobs.Running, now
	}
	return true, true
}

func end(row *sqlstore.Row, status jobs.Status, now time.Time) {
	row.Status, row.CompletedAt, row.LeaseID, row.NextRetryAt = status, now, 0, time.Time{}
}

func holds(row *sqlstore.Row, fence int64) error {
	switch {
	case row == nil:
		return jobs.ErrNotFound
	case !row.Leased() || row.Fence != fence:
		return jobs.ErrLeaseLost
	}
	return nil
}

func complete(fence int64, result json.RawMessage, now time.Time) transition {
	return func(row *sqlstore.Row, _ bool) (bool, effect, error) {
		if row != nil && row.Settled == fence && row.Status == jobs.Succeeded {
			return false, remove, nil // said again
		}
		if err := holds(row, fence); err != nil {
			return false, none, err
		}
		end(row, jobs.Succeeded, now)
		row.Settled, row.Result, row.Error = fence, result, ""
		return true, remove, nil
	}
}

func fail(fence int64, failure jobs.Failure, now time.Time, o *Options) transition {
	return func(row *sqlstore.Row, _ bool) (bool, effect, error) {
		if row != nil && row.Settled == fence && row.Status != jobs.Succeeded && !row.Leased() {
			return false, none, nil // said again
		}
		if err := holds(row, fence); err != nil {
			return false, none, err
		}
		row.Settled, row.Error = fence, failure.Message
		switch {
		case !failure.Retryable:
			end(row, jobs.Failed, now)
		case row.Executor == jobs.Kubernetes || row.RetryCount >= row.Retry.MaxRetries:
			// An AIJob does its retries itself: when it fails, they are used up.
			end(row, jobs.DeadLetter, now)
		default:
			row.NextRetryAt = now.Add(delay(row.RetryCount, row.Retry.BackoffMultiplier, o, rand.Float64())).Truncate(time.Microsecond) //nolint:gosec // spreads retries
			row.RetryCount++
			row.Status, row.LeaseID, row.QueuedAt = jobs.Retrying, 0, row.NextRetryAt
			return true, enqueue, nil
		}
		return true, remove, nil
	}
}

// delay before the next try of a job that was retried n times. The jitter, of 10 % to both sides, is chosen by random in [0, 1).
func delay(n int, multiplier float64, o *Options, random float64) time.Duration {
	if multiplier <= 0 {
		multiplier = 2
	}
	d := min(float64(o.RetryDelay)*math.Pow(multiplier, float64(n)), float64(o.MaxRetryDelay))
	return time.Duration(d * (0.9 + 0.2*random))
}

// expire takes a job back from a worker that was not heard of: a try that the worker lost. Of an AIJob nothing is lost but who watches it.
func expire(row *sqlstore.Row, now time.Time) effect {
	row.LeaseID = 0
	if row.Executor == jobs.Kubernetes {
		return enqueue
	}
	row.Error = fmt.Sprintf("the worker %s was not heard of until its lease was over", row.WorkerID)
	if row.RetryCount >= row.Retry.MaxRetries {
		end(row, jobs.DeadLetter, now)
		return remove
	}
	row.RetryCount++
	row.Status, row.QueuedAt = jobs.Queued, now
	return enqueue
}

// giveBack undoes a lease that did not reach its worker.
func giveBack(fence int64) transition {
	return func(row *sqlstore.Row, _ bool) (bool, effect, error) {
		if holds(row, fence) != nil {
			return false, none, nil
		}
		row.LeaseID, row.WorkerID = 0, ""
		if row.Executor == jobs.Pool {
			row.Status, row.StartedAt = jobs.Queued, time.Time{}
		}
		return true, enqueue, nil
	}
}

func cancel(now time.Time) transition {
	return func(row *sqlstore.Row, again bool) (bool, effect, error) {
		switch {
		case row == nil:
			return false, none, jobs.ErrNotFound
		case row.Status == jobs.Cancelled && again:
			return false, remove, nil
		case row.Status.Ended():
			return false, none, jobs.ErrEnded
		}
		end(row, jobs.Cancelled, now)
		return true, remove, nil
	}
}

func requeue(now time.Time) transition {
	return func(row *sqlstore.Row, again bool) (bool, effect, error) {
		switch {
		case row == nil:
			return false, none, jobs.ErrNotFound
		case again && !row.Status.Ended() && row.QueuedAt.Equal(now):
			return false, enqueue, nil
		case row.Status != jobs.DeadLetter:
			return false, none, jobs.ErrNotDeadLetter
		}
		row.Status, row.QueuedAt, row.StartedAt, row.CompletedAt = jobs.Queued, now, time.Time{}, time.Time{}
		row.RetryCount, row.WorkerID, row.Error = 0, "", ""
		// What Redis is still told about the end must not take it out again.
		row.Fence++
		return true, enqueue, nil
	}
}

func phase(fence int64, status jobs.Status, now time.Time) transition {
	return func(row *sqlstore.Row, _ bool) (bool, effect, error) {
		if err := holds(row, fence); err != nil {
			return false, none, err
		}
		if row.Status == status {
			return false, none, nil
		}
		row.Status = status
		if status == jobs.Running {
			row.StartedAt = now
		}
		return true, none, nil
	}
}
