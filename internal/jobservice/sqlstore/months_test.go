package sqlstore_test

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/sqlstore"
	"github.com/dcnlab/spot-training-operator/test/harness/postgres"
)

// archive is a database with jobs of several months.
type archive struct {
	sqlstore.Database
	t          *testing.T
	connection *pgx.Conn
}

// newArchive is a database of its own in a server.
func newArchive(t *testing.T, server *postgres.Server) *archive {
	connect := func(url string) *pgx.Conn {
		connection, err := pgx.Connect(t.Context(), url)
		require.NoError(t, err)
		t.Cleanup(func() { _ = connection.Close(context.Background()) })
		return connection
	}
	name := "test_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	_, err := connect(server.URL).Exec(t.Context(), "CREATE DATABASE "+name)
	require.NoError(t, err)
	url := strings.Replace(server.URL, "/postgres?", "/"+name+"?", 1)
	db, err := sqlstore.OpenPostgres(t.Context(), url, sqlstore.Replica{})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	return &archive{Database: db, t: t, connection: connect(url)}
}

func day(year int, month time.Month, day int) time.Time {
	return time.Date(year, month, day, 12, 0, 0, 0, time.UTC)
}

// idOf is one of version 7.
func idOf(made time.Time) string {
	id := uuid.Must(uuid.NewV7())
	var milliseconds [8]byte
	binary.BigEndian.PutUint64(milliseconds[:], uint64(made.UnixMilli()))
	copy(id[:6], milliseconds[2:])
	return id.String()
}

// job adds one that was made at a time, and ended at another unless that is zero.
func (a *archive) job(made, ended time.Time) string {
	row := &sqlstore.Row{Job: jobs.Job{ID: idOf(made), Namespace: "team-a", Queue: "q", Type: "t", Executor: jobs.Pool, CreatedAt: made}}
	require.NoError(a.t, a.Insert(a.t.Context(), []*sqlstore.Row{row}, sqlstore.Outbox{}, sqlstore.Delivered{}))
	if !ended.IsZero() {
		require.NoError(a.t, a.end(a.t.Context(), row.ID, ended))
	}
	return row.ID
}

func (a *archive) end(ctx context.Context, id string, at time.Time) error {
	return a.Change(ctx, sqlstore.Change{IDs: []string{id}, Decide: func(rows map[string]*sqlstore.Row) ([]*sqlstore.Row, sqlstore.Outbox) {
		rows[id].Status, rows[id].CompletedAt = jobs.Succeeded, at
		return []*sqlstore.Row{rows[id]}, sqlstore.Outbox{}
	}})
}

func (a *archive) keep(now time.Time, retention time.Duration) sqlstore.Months {
	a.t.Helper()
	// The lock of the call before may last a moment longer than the call: then this one would leave the work to it.
	require.Eventually(a.t, func() (free bool) {
		err := a.connection.QueryRow(a.t.Context(), "SELECT NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' "+
			"AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))").Scan(&free)
		return err == nil && free
	}, time.Minute, time.Millisecond)
	done, err := a.KeepMonths(a.t.Context(), now, retention, retention)
	require.NoError(a.t, err)
	return done
}

// table that a job is in.
func (a *archive) table(id string) (name string) {
	require.NoError(a.t, a.connection.QueryRow(a.t.Context(), "SELECT tableoid::regclass::text FROM jobs WHERE id = $1", id).Scan(&name))
	return name
}

// left are the jobs that there are, which must be as many as are counted.
func (a *archive) left() (ids []string) {
	all, total, err := a.List(a.t.Context(), jobs.Filter{})
	require.NoError(a.t, err)
	require.Len(a.t, all, total)
	for _, job := range all {
		ids = append(ids, job.ID)
	}
	return ids
}

func TestHistoryIsKeptByMonth(t *testing.T) {
	server := postgres.Start(t)
	for name, test := range map[string]func(*testing.T, *archive){
		"each month has a table":                              eachMonthHasATable,
		"the first table ends days ahead":                     firstTableEndsDaysAhead,
		"months that are over are dropped":                    monthsAreDropped,
		"what was begun again outlives its month":             begunAgain,
		"old jobs of months that stay are deleted one by one": oneByOne,
		"jobs go on while their table is partitioned":         jobsGoOn,
	} {
		t.Run(name, func(t *testing.T) { test(t, newArchive(t, server)) })
	}
}

const thirtyDays = 30 * 24 * time.Hour

func eachMonthHasATable(t *testing.T, a *archive) {
	_, err := a.connection.Exec(t.Context(), "CREATE ROLE reader; GRANT SELECT ON jobs TO reader")
	require.NoError(t, err)
	old := a.job(day(2026, 1, 5), time.Time{})
	require.Equal(t, []string{"jobs_before_2026_12", "jobs_2026_12", "audit_before_2026_12", "audit_2026_12"}, a.keep(day(2026, 11, 20), 0).Created)
	require.Empty(t, a.keep(day(2026, 11, 30), 0).Created)
	next, far := a.job(day(2026, 12, 5), time.Time{}), a.job(day(2027, 3, 5), time.Time{})
	require.Equal(t, "jobs_before_2026_12", a.table(old))
	require.Equal(t, "jobs_2026_12", a.table(next))
	require.Equal(t, "jobs_other", a.table(far), "nothing is refused because its month is missing")
	require.Equal(t, []string{far, next, old}, a.left(), "the newest first")
	require.Equal(t, []string{"jobs_2027_01", "audit_2027_01"}, a.keep(day(2026, 12, 1), 0).Created)
	require.Equal(t, []string{"jobs_2027_04", "audit_2027_03", "audit_2027_04"}, a.keep(day(2027, 3, 6), 0).Created,
		"a month some of whose jobs are with the others has no table")
	require.Equal(t, []string{far, next, old}, a.left())
	var may bool
	require.NoError(t, a.connection.QueryRow(t.Context(), "SELECT has_table_privilege('reader', 'jobs', 'SELECT')").Scan(&may))
	require.True(t, may, "grants go on")
}

func firstTableEndsDaysAhead(t *testing.T, a *archive) {
	require.Equal(t, []string{"jobs_before_2027_01", "audit_before_2027_01"}, a.keep(day(2026, 11, 30), 0).Created)
}

func monthsAreDropped(t *testing.T, a *archive) {
	a.keep(day(2026, 9, 20), 0)
	a.keep(day(2026, 10, 20), 0)
	a.keep(day(2026, 11, 20), 0)
	entry := jobs.AuditEntry{Time: day(2026, 9, 1), Action: "jobs.create"}
	require.NoError(t, a.Audit(t.Context(), []string{idOf(entry.Time)}, []jobs.AuditEntry{entry}))
	september := a.job(day(2026, 9, 1), day(2026, 9, 2))
	october, late := a.job(day(2026, 10, 1), day(2026, 10, 2)), a.job(day(2026, 10, 30), day(2026, 11, 15))
	november, running := a.job(day(2026, 11, 1), day(2026, 11, 1)), a.job(day(2026, 11, 2), time.Time{})

	require.Empty(t, a.keep(day(2026, 10, 29), thirtyDays).Dropped, "September is not over for 30 days")
	require.Empty(t, a.keep(day(2026, 11, 20), 0).Dropped, "all is kept")
	require.Equal(t, []string{"jobs_before_2026_10", "audit_before_2026_10"}, a.keep(day(2026, 11, 20), thirtyDays).Dropped)
	require.NotContains(t, a.left(), september)
	require.Equal(t, []string{"audit_2026_10"}, a.keep(day(2026, 12, 14), thirtyDays).Dropped)
	require.Contains(t, a.left(), october, "its month has a job that ended less than 30 days ago")
	require.Equal(t, []string{"jobs_2026_10"}, a.keep(day(2026, 12, 16), thirtyDays).Dropped)
	require.NotContains(t, a.left(), late)
	require.Equal(t, []string{"jobs_2026_12", "audit_2026_11", "audit_2026_12"}, a.keep(day(2027, 2, 1), thirtyDays).Dropped, "a job of November runs")
	require.ElementsMatch(t, []string{november, running}, a.left())
	require.NoError(t, a.end(t.Context(), running, day(2027, 2, 2)))
	require.Equal(t, []string{"jobs_2026_11", "jobs_2027_01", "audit_2027_01"}, a.keep(day(2027, 3, 5), thirtyDays).Dropped)
	require.Empty(t, a.left())
}

// One who detached a month may be stopped, and a job of it may have been queued again just before.
func begunAgain(t *testing.T, a *archive) {
	a.keep(day(2026, 9, 20), 0)
	over, again := a.job(day(2026, 9, 1), day(2026, 9, 2)), a.job(day(2026, 9, 3), time.Time{})
	_, err := a.connection.Exec(t.Context(), "ALTER TABLE jobs DETACH PARTITION jobs_before_2026_10")
	require.NoError(t, err)
	require.Contains(t, a.keep(day(2026, 11, 20), thirtyDays).Dropped, "jobs_before_2026_10")
	require.Equal(t, []string{again}, a.left())
	rows, err := a.Get(t.Context(), []string{over, again})
	require.NoError(t, err)
	require.Len(t, rows, 1)
}

func oneByOne(t *testing.T, a *archive) {
	now := time.Now()
	a.keep(now, 0)
	cutoff := now.Add(-2 * thirtyDays)
	old := a.job(cutoff.Add(-2*thirtyDays), cutoff.Add(-thirtyDays))
	monthOfCutoff := a.job(time.Date(cutoff.Year(), cutoff.Month(), 1, 0, 0, 0, 0, time.UTC), cutoff.Add(-time.Millisecond))
	n, err := a.Prune(t.Context(), cutoff, 10)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, []string{monthOfCutoff}, a.left(), "%s is gone, the rest goes with its month", old)
	n, err = a.Prune(t.Context(), now.Add(-time.Hour), 10)
	require.NoError(t, err)
	require.Equal(t, 1, n, "a short retention does not wait for months")
}

func jobsGoOn(t *testing.T, a *archive) {
	ctx := t.Context()
	stop := make(chan struct{})
	var writers sync.WaitGroup
	var mu sync.Mutex
	var failed error
	var ids []string
	for range 4 {
		writers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				now := time.Now()
				row := &sqlstore.Row{Job: jobs.Job{ID: idOf(now), Namespace: "team-a", Queue: "q", Type: "t", Executor: jobs.Pool, CreatedAt: now}}
				err := a.Insert(ctx, []*sqlstore.Row{row}, sqlstore.Outbox{ID: uuid.NewString(), Jobs: []string{row.ID}}, sqlstore.Delivered{})
				if err == nil {
					err = a.end(ctx, row.ID, now)
				}
				_, _, listed := a.List(ctx, jobs.Filter{Limit: 10})
				mu.Lock()
				failed = errors.Join(failed, err, listed)
				ids = append(ids, row.ID)
				mu.Unlock()
			}
		})
	}
	written := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(ids)
	}
	more := func() {
		before := written()
		require.Eventually(t, func() bool { return written() > before+50 }, time.Minute, time.Millisecond)
	}
	more()
	require.NotEmpty(t, a.keep(time.Now(), 0).Created)
	more()
	close(stop)
	writers.Wait()
	require.NoError(t, failed)
	require.ElementsMatch(t, ids, a.left())
	counts, err := a.Counts(ctx)
	require.NoError(t, err)
	ended := 0
	for _, count := range counts {
		if count.Status == jobs.Succeeded {
			ended += count.N
		}
	}
	require.Equal(t, len(ids), ended)
}
