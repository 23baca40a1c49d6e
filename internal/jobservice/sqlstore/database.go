package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

// database answers what both kinds of database answer alike.
type database struct {
	dialect
	// read and write are one pool or two.
	read, write *sql.DB
}

// dialect is where they differ.
type dialect struct {
	// kind names the folder of the migrations. The other statements begin them, and read and write the version.
	kind, beginMigration, readVersion, writeVersion string
	// makeIndex makes openIndex where it is missing.
	makeIndex string
	// id selects an ID as text, counts is the table of job counts.
	id, counts string
	// among is a condition on a column and a numbered parameter that is a list, each such a parameter as a table of values.
	among, each string
	// snapshot has all statements of a transaction see the same.
	snapshot sql.IsolationLevel
	// skipLocked ends a statement that selects rows to delete, lockEpoch is the one before the epoch is set.
	skipLocked, lockEpoch string
	// texts and keys make arguments that are lists, of texts and of IDs.
	texts, keys func([]string) any
	// repeat runs a statement with each row of arguments, all in one transaction.
	repeat func(ctx context.Context, text string, rows [][]any) error
	// unavailable marks errors that mean that the database is unavailable.
	unavailable func(error) error
}

// row is one result of a query.
type row interface{ Scan(...any) error }

type querier interface {
	QueryContext(ctx context.Context, query string, arguments ...any) (*sql.Rows, error)
}

// gather scans all results of a query.
func gather[T any](ctx context.Context, d *database, from querier, scan func(row) (T, error), text string, arguments ...any) ([]T, error) {
	found, err := from.QueryContext(ctx, text, arguments...)
	if err != nil {
		return nil, d.unavailable(err)
	}
	defer found.Close()
	all := []T{}
	for found.Next() {
		one, err := scan(found)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, d.unavailable(found.Err())
}

func (d *database) transaction(ctx context.Context, do func(*sql.Tx) error) error {
	tx, err := d.write.BeginTx(ctx, nil)
	if err != nil {
		return d.unavailable(err)
	}
	if err := do(tx); err != nil {
		_ = tx.Rollback()
		return d.unavailable(err)
	}
	return d.unavailable(tx.Commit())
}

// change runs a statement, and says how many rows it changed.
func (d *database) change(ctx context.Context, text string, arguments ...any) (int, error) {
	result, err := d.write.ExecContext(ctx, text, arguments...)
	if err != nil {
		return 0, d.unavailable(err)
	}
	n, err := result.RowsAffected()
	return int(n), err
}

func (d *database) get(ctx context.Context, from querier, ids []string) (map[string]*Row, error) {
	rows, err := gather(ctx, d, from, scan, "SELECT "+d.id+", "+columns+" FROM jobs WHERE "+fmt.Sprintf(d.among, "id", 1), d.keys(ids))
	found := make(map[string]*Row, len(rows))
	for _, row := range rows {
		found[row.ID] = row
	}
	return found, err
}

func (d *database) Get(ctx context.Context, ids []string) (map[string]*Row, error) {
	return d.get(ctx, d.read, ids)
}

func (d *database) List(ctx context.Context, filter jobs.Filter) ([]jobs.Job, int, error) {
	where, arguments := d.conditions(filter)
	// One snapshot for both, so that the total is that of the list.
	tx, err := d.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true, Isolation: d.snapshot})
	if err != nil {
		return nil, 0, d.unavailable(err)
	}
	defer func() { _ = tx.Rollback() }()
	var total int
	err = tx.QueryRowContext(ctx, "SELECT CAST(coalesce(sum(n), 0) AS bigint) FROM "+d.counts+" WHERE "+where, arguments...).Scan(&total)
	if err != nil {
		return nil, 0, d.unavailable(err)
	}
	if filter.Offset >= total {
		return []jobs.Job{}, total, nil // it need not look through all others to find that out
	}
	limit := filter.Limit
	if limit <= 0 {
		limit = math.MaxInt64
	}
	items, err := gather(ctx, d, tx, func(from row) (jobs.Job, error) {
		row, err := scan(from)
		if err != nil {
			return jobs.Job{}, err
		}
		return row.Job, nil
	}, fmt.Sprintf("SELECT %s, %s FROM jobs WHERE %s ORDER BY jobs.id DESC LIMIT $%d OFFSET $%d", d.id, columns, where, len(arguments)+1, len(arguments)+2),
		append(arguments, limit, filter.Offset)...)
	return items, total, err
}

// conditions of a filter on columns that the tables of jobs and of counts both have, with numbered parameters.
func (d *database) conditions(filter jobs.Filter) (string, []any) {
	where, arguments := []string{"true"}, []any{}
	add := func(condition, column string, argument any) {
		arguments = append(arguments, argument)
		where = append(where, fmt.Sprintf(condition, column, len(arguments)))
	}
	if filter.Namespaces != nil {
		add(d.among, "namespace", d.texts(filter.Namespaces))
	}
	for _, equal := range [][2]string{{"status", string(filter.Status)}, {"type", filter.Type}, {"queue", filter.Queue}} {
		if equal[1] != "" {
			add("%s = $%d", equal[0], equal[1])
		}
	}
	if filter.PriorityMin > 0 {
		add("%s >= $%d", "priority", filter.PriorityMin)
	}
	return strings.Join(where, " AND "), arguments
}

func (d *database) Open(ctx context.Context, status jobs.Status, after string, limit int) ([]*Row, error) {
	if after == "" {
		after = "00000000-0000-0000-0000-000000000000"
	}
	return gather(ctx, d, d.read, scan, "SELECT "+d.id+", "+columns+" FROM jobs WHERE status = $1 AND id > $2 ORDER BY jobs.id LIMIT $3",
		string(status), after, limit)
}

func (d *database) Undelivered(ctx context.Context, before time.Time, limit int) ([]Outbox, error) {
	return gather(ctx, d, d.read, func(row row) (o Outbox, err error) {
		var ids string
		err = row.Scan(&o.ID, &ids)
		o.Jobs = strings.Split(ids, ",")
		return o, err
	}, "SELECT "+d.id+", jobs FROM outbox WHERE created_at < $1 ORDER BY created_at LIMIT $2", micros(before), limit)
}

// addOutbox is of a transaction that is tried again, too.
const addOutbox = "INSERT INTO outbox (id, created_at, jobs) VALUES ($1, $2, $3) ON CONFLICT (id) DO NOTHING"

// deliver sees the new epoch when it comes after SetEpoch; when it comes before, the jobs are there for the scan that follows.
func (d *dialect) deliver() string {
	return "DELETE FROM outbox WHERE " + fmt.Sprintf(d.among, "id", 1) + " AND (SELECT id FROM epoch) = $2"
}

func (d *database) Deliver(ctx context.Context, delivered Delivered) (int, error) {
	return d.change(ctx, d.deliver(), d.keys(delivered.IDs), delivered.Epoch)
}

func (d *database) Epoch(ctx context.Context) (epoch string, err error) {
	err = d.read.QueryRowContext(ctx, "SELECT id FROM epoch").Scan(&epoch)
	return epoch, d.unavailable(err)
}

func (d *database) SetEpoch(ctx context.Context, epoch string) error {
	return d.transaction(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, d.lockEpoch); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "UPDATE epoch SET id = $1", epoch)
		return err
	})
}

func (d *database) Counts(ctx context.Context) ([]Count, error) {
	return gather(ctx, d, d.read, func(row row) (c Count, err error) {
		return c, row.Scan(&c.Queue, &c.Executor, &c.Status, &c.N)
	}, "SELECT queue, executor, status, CAST(sum(n) AS bigint) FROM "+d.counts+" GROUP BY 1, 2, 3 ORDER BY 1, 2, 3")
}

func (d *database) OpenIn(ctx context.Context, namespace string) (int, error) {
	return d.count(ctx, "SELECT CAST(coalesce(sum(n), 0) AS bigint) FROM "+d.counts+
		" WHERE namespace = $1 AND status NOT IN ('succeeded', 'failed', 'dead_letter', 'cancelled')", namespace)
}

// OpenOf has an index whose condition is in the same words.
func (d *database) OpenOf(ctx context.Context, submitter string) (int, error) {
	return d.count(ctx, "SELECT count(*) FROM jobs WHERE submitter = $1 AND "+open, submitter)
}

func (d *database) count(ctx context.Context, query, of string) (n int, err error) {
	err = d.read.QueryRowContext(ctx, query, of).Scan(&n)
	return n, d.unavailable(err)
}

func (d *database) Oldest(ctx context.Context, queues []string) (map[string]time.Time, error) {
	oldest := map[string]time.Time{}
	_, err := gather(ctx, d, d.read, func(row row) (at int64, err error) {
		var queue string
		err = row.Scan(&queue, &at)
		oldest[queue] = fromMicros(at)
		return at, err
	}, `SELECT given.value, coalesce((SELECT queued_at FROM jobs
  WHERE jobs.queue = given.value AND status IN ('queued', 'retrying') ORDER BY queued_at LIMIT 1), 0) FROM `+d.each, d.texts(queues))
	return oldest, err
}

func (d *database) Figures(ctx context.Context, width int64, since time.Time) ([]Figure, error) {
	return gather(ctx, d, d.read, func(row row) (f Figure, err error) {
		return f, row.Scan(&f.Width, &f.Start, &f.Queue, &f.Kind, &f.Bucket, &f.N, &f.Total)
	}, "SELECT width, start, queue, kind, bucket, n, total FROM figures WHERE width = $1 AND start >= $2", width, since.Unix())
}

func (d *database) AddFigures(ctx context.Context, figures []Figure) error {
	rows := make([][]any, len(figures))
	for i, f := range figures {
		rows[i] = []any{f.Width, f.Start, f.Queue, f.Kind, f.Bucket, f.N, f.Total}
	}
	return d.repeat(ctx, `INSERT INTO figures (width, start, queue, kind, bucket, n, total) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (width, start, queue, kind, bucket) DO UPDATE SET n = figures.n + excluded.n, total = figures.total + excluded.total`, rows)
}

// forgetFigures deletes those that are too old.
func forgetFigures(ctx context.Context, tx *sql.Tx) error {
	now := time.Now()
	_, err := tx.ExecContext(ctx, "DELETE FROM figures WHERE width = $1 AND start < $2 OR width = $3 AND start < $4",
		minuteWidth, now.Add(-minutesKept).Unix(), hourWidth, now.Add(-hoursKept).Unix())
	return err
}

func (d *database) Audit(ctx context.Context, ids []string, entries []jobs.AuditEntry) error {
	rows := make([][]any, len(entries))
	for i, e := range entries {
		rows[i] = []any{ids[i], micros(e.Time), e.User, e.Action, e.Namespace, e.JobID, e.RequestID, e.Status, e.Message}
	}
	return d.repeat(ctx, `INSERT INTO audit (id, time, username, action, namespace, job_id, request_id, status, message)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (id) DO NOTHING`, rows)
}

func (d *database) Prune(ctx context.Context, endedBefore time.Time, limit int) (int, error) {
	// A job that ended before was made before.
	return d.prune(ctx, endedBefore, endedBefore, limit)
}

// prune deletes jobs that were made before a time and ended before another.
func (d *database) prune(ctx context.Context, madeBefore, endedBefore time.Time, limit int) (int, error) {
	pruned := 0
	for _, status := range []jobs.Status{jobs.Succeeded, jobs.Failed, jobs.DeadLetter, jobs.Cancelled} {
		// By its ID the index finds it.
		n, err := d.change(ctx, `DELETE FROM jobs WHERE id IN (
  SELECT id FROM jobs WHERE status = $1 AND id < $2 AND completed_at < $3 ORDER BY id LIMIT $4`+d.skipLocked+")",
			string(status), firstID(madeBefore), micros(endedBefore), limit-pruned)
		if pruned += n; err != nil || pruned >= limit {
			return pruned, err
		}
	}
	return pruned, nil
}

func (d *database) PruneAudit(ctx context.Context, before time.Time, limit int) (int, error) {
	return d.change(ctx, "DELETE FROM audit WHERE id IN (SELECT id FROM audit WHERE id < $1 ORDER BY id LIMIT $2)", firstID(before), limit)
}

func (d *database) Ping(ctx context.Context) error { return d.unavailable(d.read.PingContext(ctx)) }
