package sqlstore_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/sqlstore"
	"github.com/dcnlab/spot-training-operator/test/harness/postgres"
)

// A plan that was good for the empty table must not be kept: until the server's next analysis each lease would read all jobs.
func TestChangesReadOnlyTheirOwnRowsWhileTheTableGrows(t *testing.T) {
	ctx := t.Context()
	server := postgres.Start(t, "autovacuum=off")
	db, err := sqlstore.OpenPostgres(ctx, server.URL+"&pool_max_conns=1", sqlstore.Replica{})
	require.NoError(t, err)
	defer db.Close()
	insert := func(n int) (ids []string) {
		rows := make([]*sqlstore.Row, n)
		for i := range rows {
			now := time.Now()
			rows[i] = &sqlstore.Row{Job: jobs.Job{
				ID: uuid.Must(uuid.NewV7()).String(), Namespace: "team-a", Queue: "q", Type: "t", Executor: jobs.Pool,
				Status: jobs.Queued, CreatedAt: now, QueuedAt: now,
			}}
			ids = append(ids, rows[i].ID)
		}
		require.NoError(t, db.Insert(ctx, rows, sqlstore.Outbox{}, sqlstore.Delivered{}))
		return ids
	}
	change := func(ids []string) {
		require.NoError(t, db.Change(ctx, sqlstore.Change{IDs: ids, Decide: func(rows map[string]*sqlstore.Row) (all []*sqlstore.Row, _ sqlstore.Outbox) {
			for _, row := range rows {
				all = append(all, row)
			}
			return all, sqlstore.Outbox{}
		}}))
	}
	few := insert(20)
	for range 10 { // from the sixth on the server may keep a plan for all
		change(few[:10])
	}
	const many = 20_000
	insert(many)
	connection, err := pgx.Connect(ctx, server.URL)
	require.NoError(t, err)
	defer func() { _ = connection.Close(ctx) }()
	figure := func(column string) (n int64) {
		require.NoError(t, connection.QueryRow(ctx, "SELECT "+column+" FROM pg_stat_user_tables WHERE relname = 'jobs'").Scan(&n))
		return n
	}
	for range 10 {
		change(few[:10])
	}
	require.Eventually(t, func() bool {
		change(nil) // the server may send its figures at the end of a transaction
		return figure("n_tup_upd") == 200
	}, time.Minute, 100*time.Millisecond)
	require.Less(t, figure("seq_tup_read"), int64(many))
}
