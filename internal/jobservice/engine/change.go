package engine

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/redisqueue"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/sqlstore"
)

// operation on one job, of one caller.
type operation struct {
	ticket
	id    string
	apply transition

	row     sqlstore.Row
	changed bool
	effect  effect
	refused error
}

func (s *Store) change(ctx context.Context, name, id string, apply transition) (jobs.Job, error) {
	o := &operation{ticket: s.newTicket(ctx, name), id: strings.ToLower(id), apply: apply}
	s.changes.add(o)
	if err := o.wait(); err != nil {
		return jobs.Job{}, err
	}
	return o.row.Job, o.refused
}

func (s *Store) flushChanges(taken []*operation) {
	change := sqlstore.Change{Delivered: s.delivered.take()}
	outbox := newID()
	for _, o := range taken {
		change.IDs = append(change.IDs, o.id)
	}
	err := persist(s.ctx, taken[0].since, s.options.OperationTimeout, func(ctx context.Context, again bool) error {
		change.Decide = func(rows map[string]*sqlstore.Row) ([]*sqlstore.Row, sqlstore.Outbox) {
			return decide(taken, rows, again, outbox)
		}
		return s.db.Change(ctx, change)
	})
	if err != nil {
		s.delivered.add(change.Delivered)
		refuse(taken, err, s.flushChanges)
		return
	}
	s.deliver(func() {
		s.follow(taken, outbox)
		for _, o := range taken {
			o.settle(nil)
		}
	})
}

// decide applies operations to the rows of their jobs, one after the other.
func decide(taken []*operation, rows map[string]*sqlstore.Row, again bool, outbox string) ([]*sqlstore.Row, sqlstore.Outbox) {
	box := sqlstore.Outbox{ID: outbox}
	changed := map[string]*sqlstore.Row{}
	for _, o := range taken {
		row := rows[o.id]
		o.changed, o.effect, o.refused = o.apply(row, again)
		if row == nil {
			continue
		}
		o.row = *row
		if o.changed {
			changed[o.id] = row
		}
		if o.effect == enqueue {
			box.Jobs = append(box.Jobs, o.id)
		}
	}
	return slices.Collect(maps.Values(changed)), box
}

// follow tells Redis. What does not reach it comes by the outbox, or, for jobs that have ended, is found out when they are leased.
func (s *Store) follow(taken []*operation, outbox string) {
	var waiting []*sqlstore.Row
	var ended []redisqueue.Held
	for _, o := range taken {
		if o.changed {
			s.figures.changed(&o.row)
		}
		switch o.effect {
		case enqueue:
			waiting = append(waiting, &o.row)
		case remove:
			ended = append(ended, redisqueue.Held{ID: o.row.ID, Fence: o.row.Fence})
		case none:
		}
	}
	s.forget(ended)
	if len(waiting) > 0 {
		_, _ = s.bring(waiting, outbox) // else the outbox does
	}
}

func (s *Store) forget(ended []redisqueue.Held) {
	if len(ended) == 0 || s.queue.Epoch() == "" {
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.options.OperationTimeout)
	defer cancel()
	s.redisFailed(s.queue.Remove(ctx, ended))
}

// Cancel ends a job as Cancelled.
func (s *Store) Cancel(ctx context.Context, id, _ string) (jobs.Job, error) {
	return s.change(ctx, "cancel", id, cancel(moment()))
}

// Requeue puts a job in dead_letter back with all its retries.
func (s *Store) Requeue(ctx context.Context, id, _ string) (jobs.Job, error) {
	return s.change(ctx, "requeue", id, requeue(moment()))
}

// Phase notes how far a leased job of the executor Kubernetes is.
func (s *Store) Phase(ctx context.Context, id string, fence int64, status jobs.Status) error {
	if status != jobs.Scheduled && status != jobs.Running && status != jobs.Retrying {
		return errors.New("a leased job is scheduled, running or retrying")
	}
	_, err := s.change(ctx, "phase", id, phase(fence, status, moment()))
	return err
}

// Complete ends a leased job as Succeeded.
func (s *Store) Complete(ctx context.Context, id string, fence int64, result json.RawMessage) (jobs.Job, error) {
	if len(result) > 0 && !json.Valid(result) {
		return jobs.Job{}, errors.New("the result is not JSON")
	}
	return s.change(ctx, "complete", id, complete(fence, []byte(clean(string(result))), moment()))
}

// Fail gives a leased job back. Of the executor Kubernetes, whose AIJobs do the retries themselves, a retryable failure means that these
// are used up: the job goes to dead_letter.
func (s *Store) Fail(ctx context.Context, id string, fence int64, failure jobs.Failure) (jobs.Job, error) {
	failure.Message = clean(failure.Message)
	return s.change(ctx, "fail", id, fail(fence, failure, moment(), &s.options))
}

// moment is now in the precision that the database keeps.
func moment() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

// clean makes text that each database takes.
func clean(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}
