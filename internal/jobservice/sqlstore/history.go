// Package sqlstore keeps the jobs of the job service in SQL, which is the truth about them: PostgreSQL, or SQLite in a file for one
// service that stands alone. It knows nothing of what a change means; package engine decides that.
package sqlstore

import (
	"context"
	"errors"
	"time"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

// Row is a job with what only the engine needs.
type Row struct {
	jobs.Job
	// LeaseID of the grant that holds; 0: the job is not leased.
	LeaseID int64
	// Settled is the newest fence under which a worker said how the job ended.
	Settled int64
}

// Leased says whether a worker has the job.
func (r *Row) Leased() bool { return r.LeaseID != 0 }

// Outbox names jobs that Redis must learn of. The zero value names none.
type Outbox struct {
	// ID is a UUID, so that a transaction that is tried again leaves one row.
	ID   string
	Jobs []string
}

// Delivered are rows of the outbox that have done their work: Redis learned of their jobs in an epoch. They are deleted while that one
// holds. What was told in an older one may be in no Redis that is used, and the scan that began the new one may have come too early for it.
type Delivered struct {
	Epoch string
	IDs   []string
}

// ErrEpoch says that the data in Redis that the change was decided on are no longer those that hold.
var ErrEpoch = errors.New("the epoch has changed")

// Change of some jobs in one transaction.
type Change struct {
	// IDs of the jobs; they are locked in one order, so that transactions wait for each other and never in a circle.
	IDs []string
	// Epoch that must hold, else ErrEpoch; empty: whichever.
	Epoch     string
	Delivered Delivered
	// Decide gets the jobs that there are, and returns those it changed and what Redis must learn of. It may be called again when
	// the transaction is tried again.
	Decide func(rows map[string]*Row) (changed []*Row, outbox Outbox)
}

// check that the epoch, as the database tells it, is that of the change.
func (c *Change) check(epoch row) error {
	var holds string
	if err := epoch.Scan(&holds); err != nil {
		return err
	}
	if holds != c.Epoch {
		return ErrEpoch
	}
	return nil
}

// Count is how many jobs there are of a sort.
type Count struct {
	Queue    string
	Executor jobs.Executor
	Status   jobs.Status
	N        int
}

// Figure is how often something happened in a span of time, and how long it took in all.
type Figure struct {
	Width, Start int64 // seconds
	Queue, Kind  string
	Bucket       int
	N, Total     int64 // Total in microseconds
}

// Database is PostgreSQL or SQLite. Errors that are no answer of the database (it is away, the time is over) are jobs.ErrUnavailable:
// what was asked for may have been done or not. Safe for concurrent use.
type Database interface {
	// Insert adds jobs and a row of the outbox, and deletes rows that were delivered, in one transaction. Jobs that are there already stay
	// as they are, so that it can be tried again.
	Insert(ctx context.Context, rows []*Row, outbox Outbox, delivered Delivered) error
	// Change changes jobs.
	Change(ctx context.Context, change Change) error

	// Get returns the jobs that there are of these.
	Get(ctx context.Context, ids []string) (map[string]*Row, error)
	// List returns jobs, the newest first, and how many match in all.
	List(ctx context.Context, filter jobs.Filter) ([]jobs.Job, int, error)
	// Open returns jobs of a status with IDs after one, in order of their IDs.
	Open(ctx context.Context, status jobs.Status, after string, limit int) ([]*Row, error)
	// Undelivered returns rows of the outbox that are older than a time, the oldest first.
	Undelivered(ctx context.Context, before time.Time, limit int) ([]Outbox, error)
	// Deliver deletes rows of the outbox, and says how many it deleted.
	Deliver(ctx context.Context, delivered Delivered) (int, error)

	// Epoch is the life of the data in Redis that holds.
	Epoch(ctx context.Context) (string, error)
	// SetEpoch waits for the changes that were decided under the old one; none can come after it.
	SetEpoch(ctx context.Context, epoch string) error
	// Lock takes the lock between the replicas without waiting. The context that it returns ends when the lock may be lost.
	Lock(ctx context.Context) (held context.Context, unlock func(), err error)

	// Counts returns the figures of all queues that have or had jobs.
	Counts(ctx context.Context) ([]Count, error)
	// OpenIn is how many jobs of a namespace have not ended.
	OpenIn(ctx context.Context, namespace string) (int, error)
	// OpenOf is how many jobs of a submitter have not ended.
	OpenOf(ctx context.Context, submitter string) (int, error)
	// Oldest returns since when the oldest waiting job of each queue waits.
	Oldest(ctx context.Context, queues []string) (map[string]time.Time, error)
	// AddFigures adds to figures.
	AddFigures(ctx context.Context, figures []Figure) error
	// Figures returns the figures of spans of a width that began at a time or later.
	Figures(ctx context.Context, width int64, since time.Time) ([]Figure, error)
	// Audit keeps entries of the audit log.
	Audit(ctx context.Context, ids []string, entries []jobs.AuditEntry) error

	// Tidy sums up counts, and deletes figures that are too old.
	Tidy(ctx context.Context) error
	// KeepMonths has PostgreSQL keep its history by month, and drops months that are older than the retention, of jobs and of the audit log;
	// 0: keeps all. For PostgreSQL, Prune and PruneAudit leave to it what was made in the month of the time, where that is a Month ago or more.
	KeepMonths(ctx context.Context, now time.Time, retention, auditRetention time.Duration) (Months, error)
	// Prune deletes at most limit jobs that ended before a time, and says how many it deleted.
	Prune(ctx context.Context, endedBefore time.Time, limit int) (int, error)
	// PruneAudit deletes at most limit entries of the audit log from before a time, and says how many it deleted.
	PruneAudit(ctx context.Context, before time.Time, limit int) (int, error)
	// Ping says why the database cannot be used.
	Ping(ctx context.Context) error
	Close()
}

// ErrLocked says that another has the lock.
var ErrLocked = errors.New("locked by another")

// How long figures are kept, by the width of their span.
const (
	minuteWidth, minutesKept = 60, 2 * time.Hour
	hourWidth, hoursKept     = 3600, 26 * time.Hour
)
