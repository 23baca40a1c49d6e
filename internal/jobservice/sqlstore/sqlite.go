package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	_ "modernc.org/sqlite" // the driver

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

type sqlite struct {
	reads
	// write has one connection: SQLite has one writer at a time, and waiting here is fair and cheap.
	write, read *sql.DB
	lock        *os.File

	mutex sync.Mutex
	held  map[string]bool
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
	s := &sqlite{lock: lock, held: map[string]bool{}}
	if s.write, err = sql.Open("sqlite", name+"&_txlock=immediate"); err == nil {
		s.write.SetMaxOpenConns(1)
		if s.read, err = sql.Open("sqlite", name); err == nil {
			s.read.SetMaxOpenConns(4)
			s.reads = readsSQLite(s.read)
			if err = s.migrate(ctx); err == nil {
				return s, nil
			}
		}
	}
	s.Close()
	return nil, fmt.Errorf("open the database in %s: %w", folder, err)
}

func (s *sqlite) migrate(ctx context.Context) error {
	return s.transaction(ctx, func(tx *sql.Tx) error {
		var at int
		if err := tx.QueryRowContext(ctx, "PRAGMA user_version").Scan(&at); err != nil {
			return err
		}
		steps, err := pending("sqlite", at)
		if err != nil {
			return err
		}
		for _, step := range steps {
			if _, err := tx.ExecContext(ctx, step.sql); err != nil {
				return fmt.Errorf("migration %d: %w", step.version, err)
			}
			if _, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", step.version)); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *sqlite) transaction(ctx context.Context, do func(*sql.Tx) error) error {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return away(err)
	}
	if err := do(tx); err != nil {
		_ = tx.Rollback()
		return away(err)
	}
	return away(tx.Commit())
}

// away marks errors that come from the time being over or the database being closed.
func away(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, sql.ErrConnDone) ||
		(err != nil && (strings.Contains(err.Error(), "database is locked") || strings.Contains(err.Error(), "interrupted") ||
			strings.Contains(err.Error(), "database is closed") || strings.Contains(err.Error(), "database or disk is full"))) {
		return fmt.Errorf("the database: %w: %w", jobs.ErrUnavailable, err)
	}
	return err
}

func (s *sqlite) Insert(ctx context.Context, rows []*Row, outbox Outbox, delivered Delivered) error {
	return s.transaction(ctx, func(tx *sql.Tx) error {
		insert, err := tx.PrepareContext(ctx, `INSERT INTO jobs (id, namespace, queue, type, executor, priority, submitter, spec, created_at, queued_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`)
		if err != nil {
			return err
		}
		defer func() { _ = insert.Close() }()
		for _, r := range rows {
			text, err := encodeSpec(&r.Job)
			if err != nil {
				return err
			}
			_, err = insert.ExecContext(ctx, r.ID, r.Namespace, r.Queue, r.Type, r.Executor, r.Priority, r.Submitter, text,
				micros(r.CreatedAt), micros(r.CreatedAt))
			if err != nil {
				return err
			}
		}
		return finishSQLite(ctx, tx, outbox, delivered)
	})
}

func finishSQLite(ctx context.Context, tx *sql.Tx, outbox Outbox, delivered Delivered) error {
	if len(outbox.Jobs) > 0 {
		_, err := tx.ExecContext(ctx, "INSERT INTO outbox (id, created_at, jobs) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
			outbox.ID, time.Now().UnixMicro(), strings.Join(outbox.Jobs, ","))
		if err != nil {
			return err
		}
	}
	if len(delivered.IDs) == 0 {
		return nil
	}
	_, err := tx.ExecContext(ctx, deliverSQLite, list(delivered.IDs), delivered.Epoch)
	return err
}

func (s *sqlite) Change(ctx context.Context, change Change) error {
	return s.transaction(ctx, func(tx *sql.Tx) error {
		if change.Epoch != "" {
			var holds string
			if err := tx.QueryRowContext(ctx, "SELECT id FROM epoch").Scan(&holds); err != nil {
				return err
			}
			if holds != change.Epoch {
				return ErrEpoch
			}
		}
		rows, err := get(ctx, tx, change.IDs)
		if err != nil {
			return err
		}
		changed, outbox := change.Decide(rows)
		for _, r := range changed {
			_, err := tx.ExecContext(ctx, `UPDATE jobs SET status = ?, queued_at = ?, started_at = ?, completed_at = ?, next_retry_at = ?,
  retry_count = ?, worker_id = ?, fence = ?, lease_id = ?, settled = ?, result = ?, error = ? WHERE id = ?`,
				r.Status, micros(r.QueuedAt), micros(r.StartedAt), micros(r.CompletedAt), micros(r.NextRetryAt),
				r.RetryCount, r.WorkerID, r.Fence, r.LeaseID, r.Settled, string(r.Result), r.Error, r.ID)
			if err != nil {
				return err
			}
		}
		return finishSQLite(ctx, tx, outbox, change.Delivered)
	})
}

func (s *sqlite) Epoch(ctx context.Context) (epoch string, err error) {
	err = s.read.QueryRowContext(ctx, "SELECT id FROM epoch").Scan(&epoch)
	return epoch, away(err)
}

func (s *sqlite) SetEpoch(ctx context.Context, epoch string) error {
	_, err := s.write.ExecContext(ctx, "UPDATE epoch SET id = ?", epoch)
	return away(err)
}

// Lock is one within the process: no other has the folder.
func (s *sqlite) Lock(ctx context.Context, name string) (context.Context, func(), error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.held[name] {
		return nil, nil, ErrLocked
	}
	s.held[name] = true
	return ctx, func() {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		delete(s.held, name)
	}, nil
}

func (s *sqlite) Ping(ctx context.Context) error { return away(s.read.PingContext(ctx)) }

func (s *sqlite) Close() {
	for _, db := range []*sql.DB{s.read, s.write} {
		if db != nil {
			_ = db.Close()
		}
	}
	_ = s.lock.Close()
}
