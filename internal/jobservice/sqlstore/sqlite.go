package sqlstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	_ "modernc.org/sqlite" // the driver

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

type sqlite struct {
	// One connection of the database writes: SQLite has one writer at a time, and waiting here is fair and cheap.
	database
	lock *os.File
	held atomic.Bool
}

// inSQLite is the dialect of a SQLite.
func (s *sqlite) inSQLite() dialect {
	return dialect{
		kind: "sqlite", beginMigration: nothing, readVersion: "PRAGMA user_version", writeVersion: "PRAGMA user_version = %d",
		makeIndex: openIndex,
		id:        "id",
		counts:    "job_counts",
		among:     "%s IN (SELECT value FROM json_each($%d))",
		each:      "json_each($1) AS given",
		lockEpoch: nothing,
		texts:     list,
		keys:      list,
		repeat: func(ctx context.Context, text string, rows [][]any) error {
			return s.transaction(ctx, func(tx *sql.Tx) error { return repeat(ctx, tx, text, rows) })
		},
		unavailable: away,
	}
}

// nothing is a statement that does nothing.
const nothing = "SELECT 1"

// list is an argument of json_each, which makes a row of null, too.
func list(values []string) any {
	text, _ := json.Marshal(append([]string{}, values...))
	return string(text)
}

// OpenSQLite opens the database in a folder, which it makes when it is not there, and brings its schema up to date. One process has
// the folder at a time.
func OpenSQLite(ctx context.Context, folder string) (Database, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of the data: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("%s is in use by another process: a folder serves one job service; several share a PostgreSQL: %w", folder, err)
	}
	// FULL waits for the disk at each commit. What is temporary stays in memory: a pod has no other folder that it may write to.
	name := "file:" + filepath.Join(folder, "jobs.db") +
		"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)&_pragma=temp_store(memory)"
	s := &sqlite{lock: lock}
	s.dialect = s.inSQLite()
	if s.write, err = sql.Open("sqlite", name+"&_txlock=immediate"); err == nil {
		s.write.SetMaxOpenConns(1)
		if s.read, err = sql.Open("sqlite", name); err == nil {
			s.read.SetMaxOpenConns(4)
			if err = s.migrate(ctx); err == nil {
				return s, nil
			}
		}
	}
	s.Close()
	return nil, fmt.Errorf("open the database in %s: %w", folder, err)
}

// away marks errors that come from the time being over or the database being closed. A transaction whose time is over is rolled back at once, so
// that its next statement finds none.
func away(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, sql.ErrConnDone) || errors.Is(err, sql.ErrTxDone) ||
		(err != nil && (strings.Contains(err.Error(), "database is locked") || strings.Contains(err.Error(), "interrupted") ||
			strings.Contains(err.Error(), "database is closed") || strings.Contains(err.Error(), "database or disk is full"))) {
		return fmt.Errorf("the database: %w: %w", jobs.ErrUnavailable, err)
	}
	return err
}

func (s *sqlite) Insert(ctx context.Context, rows []*Row, outbox Outbox, delivered Delivered) error {
	inserted, err := insertedColumns(rows)
	if err != nil {
		return err
	}
	return s.transaction(ctx, func(tx *sql.Tx) error {
		err := repeat(ctx, tx, `INSERT INTO jobs (id, namespace, queue, type, executor, priority, submitter, spec, created_at, queued_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9) ON CONFLICT DO NOTHING`, inserted)
		if err != nil {
			return err
		}
		return s.finish(ctx, tx, outbox, delivered)
	})
}

func repeat(ctx context.Context, tx *sql.Tx, text string, rows [][]any) error {
	if len(rows) == 0 {
		return nil
	}
	statement, err := tx.PrepareContext(ctx, text)
	if err != nil {
		return err
	}
	defer statement.Close()
	for _, arguments := range rows {
		if _, err := statement.ExecContext(ctx, arguments...); err != nil {
			return err
		}
	}
	return nil
}

func (s *sqlite) finish(ctx context.Context, tx *sql.Tx, outbox Outbox, delivered Delivered) error {
	if len(outbox.Jobs) > 0 {
		if _, err := tx.ExecContext(ctx, addOutbox, outbox.ID, time.Now().UnixMicro(), strings.Join(outbox.Jobs, ",")); err != nil {
			return err
		}
	}
	if len(delivered.IDs) == 0 {
		return nil
	}
	_, err := tx.ExecContext(ctx, s.deliver(), list(delivered.IDs), delivered.Epoch)
	return err
}

func (s *sqlite) Change(ctx context.Context, change Change) error {
	return s.transaction(ctx, func(tx *sql.Tx) error {
		if change.Epoch != "" {
			if err := change.check(tx.QueryRowContext(ctx, "SELECT id FROM epoch")); err != nil {
				return err
			}
		}
		rows, err := s.get(ctx, tx, change.IDs)
		if err != nil {
			return err
		}
		changed, outbox := change.Decide(rows)
		err = repeat(ctx, tx, `UPDATE jobs SET status = $2, queued_at = $3, started_at = $4, completed_at = $5, next_retry_at = $6,
  retry_count = $7, worker_id = $8, fence = $9, lease_id = $10, settled = $11, result = $12, error = $13 WHERE id = $1`, updatedColumns(changed))
		if err != nil {
			return err
		}
		return s.finish(ctx, tx, outbox, change.Delivered)
	})
}

// Lock is one within the process: no other has the folder.
func (s *sqlite) Lock(ctx context.Context) (context.Context, func(), error) {
	if !s.held.CompareAndSwap(false, true) {
		return nil, nil, ErrLocked
	}
	return ctx, func() { s.held.Store(false) }, nil
}

func (s *sqlite) Tidy(ctx context.Context) error {
	return s.transaction(ctx, func(tx *sql.Tx) error { return forgetFigures(ctx, tx) })
}

func (s *sqlite) Close() {
	for _, db := range []*sql.DB{s.read, s.write} {
		if db != nil {
			_ = db.Close()
		}
	}
	_ = s.lock.Close()
}

// KeepMonths does nothing: one service has few enough jobs.
func (s *sqlite) KeepMonths(context.Context, time.Time, time.Duration, time.Duration) (Months, error) {
	return Months{}, nil
}
