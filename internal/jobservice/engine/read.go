package engine

import (
	"context"
	"fmt"
	"strings"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

// Get returns a job.
func (s *Store) Get(ctx context.Context, id string) (jobs.Job, error) {
	id = strings.ToLower(id)
	ctx, cancel := context.WithTimeout(ctx, s.options.OperationTimeout)
	defer cancel()
	rows, err := s.db.Get(ctx, []string{id})
	if err != nil {
		return jobs.Job{}, err
	}
	if row := rows[id]; row != nil {
		return row.Job, nil
	}
	return jobs.Job{}, jobs.ErrNotFound
}

// listsAtOnce leaves most connections to the database to what is quick: many long lists must not keep jobs from being taken and leased.
const listsAtOnce = 4

// List returns jobs, the newest first, and how many match in all.
func (s *Store) List(ctx context.Context, filter jobs.Filter) ([]jobs.Job, int, error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.OperationTimeout)
	defer cancel()
	select {
	case s.lists <- struct{}{}:
		defer func() { <-s.lists }()
	case <-ctx.Done():
		return nil, 0, fmt.Errorf("other lists take too long: %w: %w", jobs.ErrUnavailable, ctx.Err())
	}
	return s.db.List(ctx, filter)
}

type auditing struct {
	ticket
	id    string
	entry jobs.AuditEntry
}

// Audit records what a user did; it returns after the database has it.
func (s *Store) Audit(ctx context.Context, entry jobs.AuditEntry) error {
	for _, text := range []*string{&entry.User, &entry.Action, &entry.Namespace, &entry.JobID, &entry.RequestID, &entry.Message} {
		*text = clean(*text)
	}
	if entry.Time.IsZero() {
		entry.Time = moment()
	}
	a := &auditing{ticket: s.newTicket(ctx, "audit"), id: newID(), entry: entry}
	s.audits.add(a)
	if err := a.wait(); err != nil {
		return fmt.Errorf("the audit log: %w", err)
	}
	return nil
}

func (s *Store) flushAudit(taken []*auditing) {
	var ids []string
	var entries []jobs.AuditEntry
	for _, a := range taken {
		ids, entries = append(ids, a.id), append(entries, a.entry)
	}
	err := persist(s.ctx, taken[0].since, s.options.OperationTimeout, func(ctx context.Context, _ bool) error {
		return s.db.Audit(ctx, ids, entries)
	})
	for _, a := range taken {
		a.settle(err)
	}
}
