package sqlstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

// readsPostgres are the reads of a PostgreSQL.
func readsPostgres(pool *pgxpool.Pool) reads {
	return reads{idColumn: "id::text", counts: allCounts, fail: unavailable, query: func(ctx context.Context, text string, arguments ...any) (rows, func(), error) {
		found, err := pool.Query(ctx, text, arguments...)
		if err != nil {
			return nil, nil, err
		}
		return found, found.Close, nil
	}}
}

func (p *postgres) Get(ctx context.Context, ids []string) (map[string]*Row, error) {
	rows, err := p.pool.Query(ctx, "SELECT id::text, "+columns+" FROM jobs WHERE id = ANY($1)", keys(ids))
	found, err := collect(rows, err)
	return found, unavailable(err)
}

const allCounts = "(SELECT * FROM job_counts UNION ALL SELECT * FROM job_count_changes) AS counts"

func (p *postgres) List(ctx context.Context, filter jobs.Filter) ([]jobs.Job, int, error) {
	where, arguments := conditions(filter, "namespace = ANY($%d)", filter.Namespaces)
	var total int
	items := []jobs.Job{}
	// One snapshot for both, so that the total is that of the list.
	err := pgx.BeginTxFunc(ctx, p.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		items = items[:0]
		err := tx.QueryRow(ctx, "SELECT coalesce(sum(n), 0)::bigint FROM "+allCounts+" WHERE "+where, arguments...).Scan(&total)
		if err != nil {
			return err
		}
		if filter.Offset >= total {
			return nil // none: it need not look through all others to find that out
		}
		query := fmt.Sprintf("SELECT id::text, %s FROM jobs WHERE %s ORDER BY jobs.id DESC OFFSET $%d", columns, where, len(arguments)+1)
		arguments := append(arguments, filter.Offset)
		if filter.Limit > 0 {
			arguments = append(arguments, filter.Limit)
			query += fmt.Sprintf(" LIMIT $%d", len(arguments))
		}
		rows, err := tx.Query(ctx, query, arguments...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			row, err := scan(rows)
			if err != nil {
				return err
			}
			items = append(items, row.Job)
		}
		return rows.Err()
	})
	return items, total, unavailable(err)
}

func (p *postgres) Deliver(ctx context.Context, delivered Delivered) (int, error) {
	tag, err := p.pool.Exec(ctx, deliver, keys(delivered.IDs), delivered.Epoch)
	return int(tag.RowsAffected()), unavailable(err)
}

func (p *postgres) Oldest(ctx context.Context, queues []string) (map[string]time.Time, error) {
	rows, err := p.pool.Query(ctx, `SELECT queue, coalesce((SELECT queued_at FROM jobs
  WHERE jobs.queue = given.queue AND status IN ('queued', 'retrying') ORDER BY queued_at LIMIT 1), 0)
FROM unnest($1::text[]) AS given (queue)`, queues)
	if err != nil {
		return nil, unavailable(err)
	}
	defer rows.Close()
	found := map[string]time.Time{}
	for rows.Next() {
		var queue string
		var at int64
		if err := rows.Scan(&queue, &at); err != nil {
			return nil, err
		}
		found[queue] = fromMicros(at)
	}
	return found, unavailable(rows.Err())
}

func (p *postgres) AddFigures(ctx context.Context, figures []Figure) error {
	batch := &pgx.Batch{}
	for _, f := range figures {
		batch.Queue(`INSERT INTO figures (width, start, queue, kind, bucket, n, total) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (width, start, queue, kind, bucket) DO UPDATE SET n = figures.n + excluded.n, total = figures.total + excluded.total`,
			f.Width, f.Start, f.Queue, f.Kind, f.Bucket, f.N, f.Total)
	}
	return unavailable(p.pool.SendBatch(ctx, batch).Close())
}

func (p *postgres) Audit(ctx context.Context, ids []string, entries []jobs.AuditEntry) error {
	batch := &pgx.Batch{}
	for i, e := range entries {
		batch.Queue(`INSERT INTO audit (id, time, username, action, namespace, job_id, request_id, status, message)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (id) DO NOTHING`,
			ids[i], micros(e.Time), e.User, e.Action, e.Namespace, e.JobID, e.RequestID, e.Status, e.Message)
	}
	return unavailable(p.pool.SendBatch(ctx, batch).Close())
}

func (p *postgres) Tidy(ctx context.Context) error {
	return p.transaction(ctx, func(tx pgx.Tx) error {
		var got bool
		if err := tx.QueryRow(ctx, "SELECT pg_try_advisory_xact_lock($1)", lockTidying).Scan(&got); err != nil || !got {
			return err // another replica is at it
		}
		_, err := tx.Exec(ctx, `WITH moved AS (DELETE FROM job_count_changes RETURNING *)
INSERT INTO job_counts SELECT namespace, queue, type, executor, status, priority, sum(n) FROM moved GROUP BY 1, 2, 3, 4, 5, 6
ON CONFLICT (namespace, queue, type, executor, status, priority) DO UPDATE SET n = job_counts.n + excluded.n`)
		if err != nil {
			return err
		}
		now := time.Now()
		_, err = tx.Exec(ctx, "DELETE FROM figures WHERE width = $1 AND start < $2 OR width = $3 AND start < $4",
			minuteWidth, now.Add(-minutesKept).Unix(), hourWidth, now.Add(-hoursKept).Unix())
		return err
	})
}

func (p *postgres) Prune(ctx context.Context, endedBefore time.Time, limit int) (int, error) {
	pruned := 0
	for _, status := range []jobs.Status{jobs.Succeeded, jobs.Failed, jobs.DeadLetter, jobs.Cancelled} {
		// A job that ended before was made before; by its ID the index finds it.
		tag, err := p.pool.Exec(ctx, `DELETE FROM jobs WHERE id IN (
  SELECT id FROM jobs WHERE status = $1 AND id < $2 AND completed_at < $3 ORDER BY id LIMIT $4 FOR UPDATE SKIP LOCKED)`,
			string(status), firstID(endedBefore), micros(endedBefore), limit-pruned)
		if err != nil {
			return pruned, unavailable(err)
		}
		if pruned += int(tag.RowsAffected()); pruned >= limit {
			break
		}
	}
	return pruned, nil
}

func (p *postgres) PruneAudit(ctx context.Context, before time.Time, limit int) (int, error) {
	tag, err := p.pool.Exec(ctx, "DELETE FROM audit WHERE id IN (SELECT id FROM audit WHERE id < $1 ORDER BY id LIMIT $2)", firstID(before), limit)
	return int(tag.RowsAffected()), unavailable(err)
}
