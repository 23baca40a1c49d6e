package sqlstore_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/sqlstore"
	"github.com/dcnlab/spot-training-operator/test/harness/postgres"
)

func TestListsComeFromAReplicaThatIsNotTooOld(t *testing.T) {
	ctx := t.Context()
	primary := postgres.Start(t)
	standby := postgres.StartReplica(t, primary)
	var mu sync.Mutex
	var lines []string
	open := func(maxLag time.Duration) *archive {
		db, err := sqlstore.OpenPostgres(ctx, primary.URL, sqlstore.Replica{URL: standby.URL, MaxLag: maxLag, Logger: funcr.New(func(_, line string) {
			mu.Lock()
			defer mu.Unlock()
			lines = append(lines, line)
		}, funcr.Options{})})
		require.NoError(t, err)
		t.Cleanup(db.Close)
		return &archive{Database: db, t: t}
	}
	logged := func(text string) {
		t.Helper()
		require.Eventually(t, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(lines) > 0 && strings.Contains(lines[len(lines)-1], text)
		}, time.Minute, 10*time.Millisecond, text)
	}
	replay := func(statement string) {
		connection, err := pgx.Connect(ctx, standby.URL)
		require.NoError(t, err)
		defer func() { _ = connection.Close(ctx) }()
		_, err = connection.Exec(ctx, "SELECT "+statement)
		require.NoError(t, err)
	}
	total := func(a *archive) int {
		_, total, err := a.List(ctx, jobs.Filter{Limit: 1})
		require.NoError(t, err)
		return total
	}
	counted := func(a *archive) (n int) {
		counts, err := a.Counts(ctx)
		require.NoError(t, err)
		for _, count := range counts {
			n += count.N
		}
		return n
	}

	patient := open(time.Hour)
	logged("are read from the replica")
	replay("pg_wal_replay_pause()")
	id := patient.job(time.Now(), time.Time{})
	require.Equal(t, 0, total(patient), "its answers may be an hour old")
	require.Equal(t, 0, counted(patient))
	rows, err := patient.Get(ctx, []string{id})
	require.NoError(t, err)
	require.Len(t, rows, 1, "a job is read from the primary")
	replay("pg_wal_replay_resume()")
	require.Eventually(t, func() bool { return total(patient) == 1 }, time.Minute, 10*time.Millisecond)

	strict := open(2 * time.Second)
	logged("are read from the replica")
	replay("pg_wal_replay_pause()")
	strict.job(time.Now(), time.Time{})
	require.Eventually(t, func() bool { return total(strict) == 2 }, time.Minute, 10*time.Millisecond, "the primary is asked when the replica lags")
	logged("as the replica lags")
	replay("pg_wal_replay_resume()")
	logged("are read from the replica")

	standby.Kill()
	strict.job(time.Now(), time.Time{})
	require.Equal(t, 3, total(strict), "the primary is asked when the replica does not answer")
	require.Equal(t, 3, counted(strict))
	logged("as the replica does not answer")
	standby.Start()
	logged("are read from the replica")
	require.Eventually(t, func() bool { return total(strict) == 3 }, time.Minute, 10*time.Millisecond)
}

func TestAServerThatIsNoReplicaIsNotAsked(t *testing.T) {
	primary, other := postgres.Start(t), postgres.Start(t)
	db, err := sqlstore.OpenPostgres(t.Context(), primary.URL, sqlstore.Replica{URL: other.URL, MaxLag: time.Hour})
	require.NoError(t, err)
	defer db.Close()
	connection, err := pgx.Connect(t.Context(), other.URL)
	require.NoError(t, err)
	defer func() { _ = connection.Close(t.Context()) }()
	require.Eventually(t, func() (probed bool) {
		err := connection.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE state = 'idle' AND query LIKE '%pg_is_in_recovery() AND%' "+
			"AND pid <> pg_backend_pid())").Scan(&probed)
		return err == nil && probed
	}, time.Minute, 10*time.Millisecond)
	_, _, err = db.List(t.Context(), jobs.Filter{})
	require.NoError(t, err, "it has no tables")
}
