package sqlstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

type querier interface {
	QueryContext(ctx context.Context, query string, arguments ...any) (*sql.Rows, error)
}

func query(ctx context.Context, from querier, text string, arguments ...any) ([]*Row, error) {
	return gather(ctx, readsSQLite(from), scan, text, arguments...)
}

// readsSQLite are the reads of a SQLite.
func readsSQLite(from querier) reads {
	return reads{idColumn: "id", counts: "job_counts", fail: away, query: func(ctx context.Context, text string, arguments ...any) (rows, func(), error) {
		found, err := from.QueryContext(ctx, text, arguments...)
		if err != nil {
			return nil, nil, err
		}
		return found, func() { _ = found.Close() }, nil
	}}
}

// list is an argument of json_each.
func list(values []string) string {
	text, _ := json.Marshal(values)
	return string(text)
}

func get(ctx context.Context, from querier, ids []string) (map[string]*Row, error) {
	rows, err := query(ctx, from, "SELECT id, "+columns+" FROM jobs WHERE id IN (SELECT value FROM json_each(?))", list(ids))
	found := make(map[string]*Row, len(rows))
	for _, row := range rows {
		found[row.ID] = row
	}
	return found, err
}

func (s *sqlite) Get(ctx context.Context, ids []string) (map[string]*Row, error) {
	return get(ctx, s.read, ids)
}

func (s *sqlite) List(ctx context.Context, filter jobs.Filter) ([]jobs.Job, int, error) {
	where, arguments := conditions(filter, "namespace IN (SELECT value FROM json_each($%d))", list(filter.Namespaces))
	// One snapshot for both, so that the total is that of the list.
	tx, err := s.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, 0, away(err)
	}
	defer func() { _ = tx.Rollback() }()
	var total int
	if err := tx.QueryRowContext(ctx, "SELECT coalesce(sum(n), 0) FROM job_counts WHERE "+where, arguments...).Scan(&total); err != nil {
		return nil, 0, away(err)
	}
	limit := filter.Limit
	if limit <= 0 {
		limit = -1 // all
	}
	page := fmt.Sprintf(" ORDER BY id DESC LIMIT $%d OFFSET $%d", len(arguments)+1, len(arguments)+2)
	rows, err := query(ctx, tx, "SELECT id, "+columns+" FROM jobs WHERE "+where+page, append(arguments, limit, filter.Offset)...)
	items := make([]jobs.Job, 0, len(rows))
	for _, row := range rows {
		items = append(items, row.Job)
	}
	return items, total, err
}

const deliverSQLite = "DELETE FROM outbox WHERE id IN (SELECT value FROM json_each(?)) AND (SELECT id FROM epoch) = ?"

func (s *sqlite) Deliver(ctx context.Context, delivered Delivered) (int, error) {
	return s.delete(ctx, deliverSQLite, list(delivered.IDs), delivered.Epoch)
}

func (s *sqlite) Oldest(ctx context.Context, queues []string) (map[string]time.Time, error) {
	found := map[string]time.Time{}
	for _, queue := range queues {
		var at int64
		err := s.read.QueryRowContext(ctx, `SELECT coalesce((SELECT queued_at FROM jobs
  WHERE queue = ? AND status IN ('queued', 'retrying') ORDER BY queued_at LIMIT 1), 0)`, queue).Scan(&at)
		if err != nil {
			return nil, away(err)
		}
		found[queue] = fromMicros(at)
	}
	return found, nil
}

func (s *sqlite) AddFigures(ctx context.Context, figures []Figure) error {
	return s.transaction(ctx, func(tx *sql.Tx) error {
		for _, f := range figures {
			_, err := tx.ExecContext(ctx, `INSERT INTO figures (width, start, queue, kind, bucket, n, total) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET n = n + excluded.n, total = total + excluded.total`, f.Width, f.Start, f.Queue, f.Kind, f.Bucket, f.N, f.Total)
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *sqlite) Audit(ctx context.Context, ids []string, entries []jobs.AuditEntry) error {
	return s.transaction(ctx, func(tx *sql.Tx) error {
		for i, e := range entries {
			_, err := tx.ExecContext(ctx, `INSERT INTO audit (id, time, username, action, namespace, job_id, request_id, status, message)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
				ids[i], micros(e.Time), e.User, e.Action, e.Namespace, e.JobID, e.RequestID, e.Status, e.Message)
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *sqlite) Tidy(ctx context.Context) error {
	now := time.Now()
	_, err := s.write.ExecContext(ctx, "DELETE FROM figures WHERE width = ? AND start < ? OR width = ? AND start < ?",
		minuteWidth, now.Add(-minutesKept).Unix(), hourWidth, now.Add(-hoursKept).Unix())
	return away(err)
}

func (s *sqlite) Prune(ctx context.Context, endedBefore time.Time, limit int) (int, error) {
	return s.delete(ctx, `DELETE FROM jobs WHERE id IN (SELECT id FROM jobs WHERE status IN ('succeeded', 'failed', 'dead_letter', 'cancelled')
  AND id < ? AND completed_at < ? LIMIT ?)`, firstID(endedBefore), micros(endedBefore), limit)
}

func (s *sqlite) PruneAudit(ctx context.Context, before time.Time, limit int) (int, error) {
	return s.delete(ctx, "DELETE FROM audit WHERE id IN (SELECT id FROM audit WHERE id < ? LIMIT ?)", firstID(before), limit)
}

func (s *sqlite) delete(ctx context.Context, text string, arguments ...any) (int, error) {
	result, err := s.write.ExecContext(ctx, text, arguments...)
	if err != nil {
		return 0, away(err)
	}
	n, err := result.RowsAffected()
	return int(n), err
}
