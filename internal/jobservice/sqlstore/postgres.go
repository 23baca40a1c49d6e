package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

// Keys of the advisory locks; the high word keeps them from those of other programs in the same database.
const (
	lockSpace    int64 = 0x4a6f6253 << 32
	lockSchema         = lockSpace | 1
	lockEpoch          = lockSpace | 2
	lockTidying        = lockSpace | 3
	lockMonths         = lockSpace | 4
	lockReplicas       = lockSpace | 0xbeac67a3
)

type postgres struct {
	database
	pool    *pgxpool.Pool
	replica *replica // nil: none
}

// inPostgres is the dialect of a PostgreSQL.
func inPostgres(pool *pgxpool.Pool) dialect {
	return dialect{
		kind:           "postgres", // with a lock, so that replicas that start together do not migrate at once
		beginMigration: fmt.Sprintf("SELECT pg_advisory_xact_lock(%d); CREATE TABLE IF NOT EXISTS schema_version (version integer NOT NULL)", lockSchema),
		readVersion:    "SELECT coalesce(max(version), 0) FROM schema_version",
		writeVersion:   "INSERT INTO schema_version VALUES (%d)",
		// Only where it is missing: the statement waits for those who write before it looks.
		makeIndex:   "DO $$ BEGIN IF to_regclass('jobs_open') IS NULL THEN " + openIndex + "; END IF; END $$",
		id:          "id::text",
		counts:      "(SELECT * FROM job_counts UNION ALL SELECT * FROM job_count_changes) AS counts",
		among:       "%s = ANY($%d)",
		each:        "unnest($1::text[]) AS given (value)",
		snapshot:    sql.LevelRepeatableRead,
		skipLocked:  " FOR UPDATE SKIP LOCKED",
		lockEpoch:   fmt.Sprintf("SELECT pg_advisory_xact_lock(%d)", lockEpoch),
		texts:       func(values []string) any { return values },
		keys:        func(ids []string) any { return keys(ids) },
		unavailable: unavailable,
		repeat: func(ctx context.Context, text string, rows [][]any) error {
			batch := &pgx.Batch{}
			for _, arguments := range rows {
				batch.Queue(text, arguments...)
			}
			return unavailable(pool.SendBatch(ctx, batch).Close())
		},
	}
}

// OpenPostgres opens a PostgreSQL database by a URL like postgres://user:password@host/database, and brings its schema up to date. Its replica need
// not answer.
func OpenPostgres(ctx context.Context, url string, ofIt Replica) (Database, error) {
	pool, err := openPool(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("the URL of the database: %w", err)
	}
	db := stdlib.OpenDBFromPool(pool)
	p := &postgres{database: database{dialect: inPostgres(pool), read: db, write: db}, pool: pool}
	if err := p.migrate(ctx); err != nil {
		p.Close()
		return nil, fmt.Errorf("bring the schema of the database up to date: %w", err)
	}
	if ofIt.URL == "" {
		return p, nil
	}
	if p.replica, err = openReplica(ctx, ofIt, pool); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// openPool does not connect yet.
func openPool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	if !strings.Contains(url, "pool_max_conns") {
		config.MaxConns = 16
	}
	config.ConnConfig.ConnectTimeout = 2 * time.Second
	parameters := config.ConnConfig.RuntimeParams
	// An acknowledged job must outlive a crash of the server, whatever the database's own default is.
	parameters["synchronous_commit"] = "on"
	// A transaction of a service that was cut off gives its locks back.
	parameters["idle_in_transaction_session_timeout"] = "5000"
	// A plan is for the size that the tables have now: one from when there were few jobs would read all of them again and again.
	parameters["plan_cache_mode"] = "force_custom_plan"
	parameters["application_name"] = "job-service"
	return pgxpool.NewWithConfig(ctx, config)
}

// unavailable marks errors that are no answer of the database, and those that say that it comes, goes, or is too full.
func unavailable(err error) error {
	var answer *pgconn.PgError
	switch {
	case err == nil, errors.Is(err, sql.ErrNoRows), errors.Is(err, ErrEpoch), errors.Is(err, ErrLocked), errors.Is(err, jobs.ErrUnavailable):
		return err
	case errors.As(err, &answer):
		switch answer.Code[:2] {
		case "08", "53", "57", "40", "25", "55": // connection, resources, operator, rollback, transaction state, locks
			return fmt.Errorf("the database: %w: %w", jobs.ErrUnavailable, err)
		}
		return err
	}
	return fmt.Errorf("the database: %w: %w", jobs.ErrUnavailable, err)
}

// keys leaves out what is no UUID: there is no such job.
func keys(ids []string) [][16]byte {
	parsed := make([][16]byte, 0, len(ids))
	for _, id := range ids {
		if key, err := uuid.Parse(id); err == nil {
			parsed = append(parsed, key)
		}
	}
	return parsed
}

const insertJobs = `INSERT INTO jobs (id, namespace, queue, type, executor, priority, submitter, spec, created_at, queued_at)
SELECT id::uuid, namespace, queue, type, executor, priority, submitter, spec, created_at, created_at
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::smallint[], $7::text[], $8::json[], $9::bigint[])
  AS given (id, namespace, queue, type, executor, priority, submitter, spec, created_at)
ON CONFLICT (id) DO NOTHING`

func (p *postgres) Insert(ctx context.Context, rows []*Row, outbox Outbox, delivered Delivered) error {
	inserted, err := insertedColumns(rows)
	if err != nil {
		return err
	}
	// All statements of a batch are one transaction, and one round trip.
	batch := &pgx.Batch{}
	queue(batch, insertJobs, inserted)
	p.finish(batch, outbox, delivered)
	return unavailable(p.pool.SendBatch(ctx, batch).Close())
}

// queue a statement whose arguments are lists: one of each column of the rows.
func queue(batch *pgx.Batch, text string, rows [][]any) {
	if len(rows) == 0 {
		return
	}
	columns := make([]any, len(rows[0]))
	for i := range columns {
		column := make([]any, len(rows))
		for j, row := range rows {
			column[j] = row[i]
		}
		columns[i] = column
	}
	batch.Queue(text, columns...)
}

func (p *postgres) finish(batch *pgx.Batch, outbox Outbox, delivered Delivered) {
	if len(outbox.Jobs) > 0 {
		batch.Queue(addOutbox, outbox.ID, time.Now().UnixMicro(), strings.Join(outbox.Jobs, ","))
	}
	if len(delivered.IDs) > 0 {
		batch.Queue(p.deliver(), keys(delivered.IDs), delivered.Epoch)
	}
}

const updateJobs = `UPDATE jobs SET status = u.status, queued_at = u.queued_at, started_at = u.started_at, completed_at = u.completed_at,
  next_retry_at = u.next_retry_at, retry_count = u.retry_count, worker_id = u.worker_id, fence = u.fence, lease_id = u.lease_id,
  settled = u.settled, result = u.result, error = u.error
FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::integer[], $8::text[], $9::bigint[],
  $10::bigint[], $11::bigint[], $12::text[], $13::text[])
  AS u (id, status, queued_at, started_at, completed_at, next_retry_at, retry_count, worker_id, fence, lease_id, settled, result, error)
WHERE jobs.id = u.id::uuid`

func (p *postgres) Change(ctx context.Context, change Change) error {
	connection, err := p.pool.Acquire(ctx)
	if err != nil {
		return unavailable(err)
	}
	defer connection.Release() // closes it when a transaction is left open
	begin := &pgx.Batch{}
	begin.Queue("BEGIN")
	if change.Epoch != "" {
		// SetEpoch takes it exclusively: transactions that got this far finish before the epoch changes, or see the new one.
		begin.Queue("SELECT pg_advisory_xact_lock_shared($1)", lockEpoch)
		begin.Queue("SELECT id FROM epoch").QueryRow(func(row pgx.Row) error { return change.check(row) })
	}
	rows := map[string]*Row{}
	begin.Queue("SELECT id::text, "+columns+" FROM jobs WHERE id = ANY($1) ORDER BY jobs.id FOR UPDATE", keys(change.IDs)).
		Query(func(found pgx.Rows) error {
			for found.Next() {
				row, err := scan(found)
				if err != nil {
					return err
				}
				rows[row.ID] = row
			}
			return nil
		})
	if err = connection.SendBatch(ctx, begin).Close(); err == nil {
		changed, outbox := change.Decide(rows)
		err = connection.SendBatch(ctx, p.commit(changed, outbox, change.Delivered)).Close()
	}
	if err != nil && !connection.Conn().IsClosed() {
		soon, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		_, _ = connection.Exec(soon, "ROLLBACK")
		cancel()
	}
	return unavailable(err)
}

// commit writes what has changed, and ends the transaction.
func (p *postgres) commit(changed []*Row, outbox Outbox, delivered Delivered) *pgx.Batch {
	batch := &pgx.Batch{}
	queue(batch, updateJobs, updatedColumns(changed))
	p.finish(batch, outbox, delivered)
	batch.Queue("COMMIT").Exec(func(tag pgconn.CommandTag) error {
		if tag.String() != "COMMIT" { // That of a transaction that failed answers ROLLBACK, without an error.
			return fmt.Errorf("the transaction ended by %s: %w", tag, jobs.ErrUnavailable)
		}
		return nil
	})
	return batch
}

func (p *postgres) Lock(ctx context.Context) (context.Context, func(), error) {
	return p.lockAs(ctx, lockReplicas)
}

func (p *postgres) lockAs(ctx context.Context, key int64) (context.Context, func(), error) {
	soon, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	// The lock is as long as its transaction.
	tx, err := p.pool.Begin(soon)
	if err != nil {
		return nil, nil, unavailable(err)
	}
	end := func() {
		soon, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		_ = tx.Rollback(soon) // closes the connection when it fails: then the server ends the transaction
	}
	var got bool
	if err := tx.QueryRow(soon, "SELECT pg_try_advisory_xact_lock($1)", key).Scan(&got); err != nil || !got {
		end()
		if err == nil {
			err = ErrLocked
		}
		return nil, nil, unavailable(err)
	}
	held, lost := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		wait.UntilWithContext(held, func(ctx context.Context) {
			ask, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			if _, err := tx.Exec(ask, "SELECT 1"); err != nil {
				lost()
			}
		}, time.Second)
	})
	return held, func() {
		lost()
		watching.Wait()
		end()
	}, nil
}

func (p *postgres) Tidy(ctx context.Context) error {
	return p.transaction(ctx, func(tx *sql.Tx) error {
		var got bool
		if err := tx.QueryRowContext(ctx, "SELECT pg_try_advisory_xact_lock($1)", lockTidying).Scan(&got); err != nil || !got {
			return err // another replica is at it
		}
		_, err := tx.ExecContext(ctx, `WITH moved AS (DELETE FROM job_count_changes RETURNING *)
INSERT INTO job_counts SELECT namespace, queue, type, executor, status, priority, sum(n) FROM moved GROUP BY 1, 2, 3, 4, 5, 6
ON CONFLICT (namespace, queue, type, executor, status, priority) DO UPDATE SET n = job_counts.n + excluded.n`)
		if err != nil {
			return err
		}
		return forgetFigures(ctx, tx)
	})
}

func (p *postgres) Close() {
	if p.replica != nil {
		p.replica.Close()
	}
	_ = p.read.Close()
	p.pool.Close()
}
