package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/redisqueue"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/sqlstore"
)

// submission of one caller: all of it in one transaction.
type submission struct {
	ticket
	rows      []*sqlstore.Row
	positions []int
}

// Submit makes jobs durable and queues them. IDs are made before, so that a commit whose answer was lost makes no second job when it is
// tried again. When Redis is away, the jobs are accepted all the same, and their places are the numbers of jobs that wait.
func (s *Store) Submit(ctx context.Context, submitted []*jobs.Job) ([]int, error) {
	if len(submitted) == 0 {
		return nil, nil
	}
	o := &submission{ticket: s.newTicket(ctx, "submit")}
	now := moment()
	for _, job := range submitted {
		row := &sqlstore.Row{Job: *job}
		row.ID, row.Status, row.CreatedAt, row.QueuedAt = newID(), jobs.Queued, now, now
		row.StartedAt, row.CompletedAt, row.NextRetryAt = time.Time{}, time.Time{}, time.Time{}
		row.RetryCount, row.WorkerID, row.Fence, row.Result, row.Error = 0, "", 0, nil, ""
		row.Timeout = row.Timeout.Truncate(time.Millisecond)
		if row.Executor == "" {
			row.Executor = jobs.Pool
		}
		if row.Queue == "" {
			row.Queue = row.Type
		}
		if err := check(row); err != nil {
			return nil, err
		}
		o.rows = append(o.rows, row)
	}
	s.submits.add(o)
	if err := o.wait(); err != nil {
		return nil, err
	}
	for i, row := range o.rows {
		*submitted[i] = row.Job //nolint:gosec // an operation has a row for each job
	}
	return o.positions, nil
}

// check refuses what a database would refuse, and with it all that is in the same transaction.
func check(row *sqlstore.Row) error {
	for field, value := range map[string]string{
		"namespace": row.Namespace, "queue": row.Queue, "job_type": row.Type, "submitter": row.Submitter, "image": row.Image,
	} {
		if !utf8.ValidString(value) || strings.ContainsRune(value, 0) {
			return fmt.Errorf("%s is not text in UTF-8", field)
		}
	}
	if row.Type == "" || strings.Contains(row.Type, "/") || row.Queue == "" {
		return errors.New("job_type and queue must be named, and job_type has no slash")
	}
	if strings.Contains(row.Namespace, "/") {
		return fmt.Errorf("namespace %q has a slash", row.Namespace)
	}
	if row.Executor != jobs.Pool && row.Executor != jobs.Kubernetes {
		return fmt.Errorf("there is no executor %q", row.Executor)
	}
	if row.Priority < 0 || row.Priority > 100 {
		return fmt.Errorf("priority %d is not from 0 to 100", row.Priority)
	}
	if len(row.Config) > 0 {
		if row.Config = bytes.TrimSpace(row.Config); !json.Valid(row.Config) || !utf8.Valid(row.Config) {
			return errors.New("config is not JSON in UTF-8")
		}
	}
	return nil
}

func (s *Store) flushSubmissions(taken []*submission) {
	var rows []*sqlstore.Row
	outbox := sqlstore.Outbox{ID: newID()}
	for _, o := range taken {
		for _, row := range o.rows {
			rows, outbox.Jobs = append(rows, row), append(outbox.Jobs, row.ID)
		}
	}
	done := s.delivered.take()
	err := persist(s.ctx, taken[0].since, s.options.OperationTimeout, func(ctx context.Context, _ bool) error {
		return s.db.Insert(ctx, rows, outbox, done)
	})
	if err != nil {
		s.delivered.add(done)
		refuse(taken, err, s.flushSubmissions)
		return
	}
	s.figures.submitted(rows)
	s.deliver(func() {
		places, err := s.bring(rows, outbox.ID)
		if err != nil {
			places = s.guess(rows)
		}
		for _, o := range taken {
			o.positions, places = places[:len(o.rows):len(o.rows)], places[len(o.rows):]
			o.settle(nil)
		}
	})
}

// deliver runs what brings changes to Redis beside the next transaction.
func (s *Store) deliver(do func()) {
	s.deliveries <- struct{}{}
	s.ending.Go(func() {
		do()
		<-s.deliveries
	})
}

// bring lets jobs wait in Redis; then the row of the outbox has done its work.
func (s *Store) bring(rows []*sqlstore.Row, outbox string) ([]int, error) {
	ctx, cancel := context.WithTimeout(s.ctx, s.options.OperationTimeout)
	defer cancel()
	all := make([]redisqueue.Entry, 0, len(rows))
	for _, row := range rows {
		all = append(all, redisqueue.EntryOf(&row.Job))
	}
	places, epoch, err := s.queue.Enqueue(ctx, all)
	if err != nil {
		s.redisFailed(err)
		return nil, err
	}
	s.delivered.add(sqlstore.Delivered{Epoch: epoch, IDs: []string{outbox}})
	s.leases.wakeFor(all)
	return places, nil
}

// guess says behind how many jobs each one waits, from the figures of the database.
func (s *Store) guess(rows []*sqlstore.Row) []int {
	ctx, cancel := context.WithTimeout(s.ctx, time.Second)
	defer cancel()
	waiting := map[string]int{}
	if counts, err := s.db.Counts(ctx); err == nil {
		for _, c := range counts {
			if waits(c.Status) {
				waiting[c.Queue] += c.N
			}
		}
	}
	places := make([]int, len(rows))
	for i := len(rows) - 1; i >= 0; i-- { // they are counted already
		places[i] = max(1, waiting[rows[i].Queue])
		waiting[rows[i].Queue]--
	}
	return places
}

func newID() string { return uuid.Must(uuid.NewV7()).String() }
