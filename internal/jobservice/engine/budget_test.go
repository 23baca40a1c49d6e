package engine_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/engine"
	"github.com/dcnlab/spot-training-operator/test/harness/budget"
	"github.com/dcnlab/spot-training-operator/test/harness/jobstore"
	"github.com/dcnlab/spot-training-operator/test/harness/postgres"
	"github.com/dcnlab/spot-training-operator/test/harness/redis"
)

func TestBudgetOfASubmission(t *testing.T) {
	const many = 200
	server := postgres.Start(t, "shared_preload_libraries=pg_stat_statements")
	connection, err := pgx.Connect(t.Context(), server.URL)
	require.NoError(t, err)
	defer func() { _ = connection.Close(t.Context()) }()
	_, err = connection.Exec(t.Context(), "CREATE EXTENSION pg_stat_statements")
	require.NoError(t, err)
	// Seconds between ticks, so that their statements do not count.
	store := jobstore.Open(t, engine.Options{DatabaseURL: server.URL, RedisURL: redis.Start(t).URL, TickInterval: time.Hour})
	submit(t, store, job())
	require.Eventually(t, func() (partitioned bool) { // which costs a few, once
		err := connection.QueryRow(t.Context(),
			"SELECT to_regclass('audit_other') IS NOT NULL AND NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory')").Scan(&partitioned)
		return err == nil && partitioned
	}, time.Minute, 10*time.Millisecond)

	statements := func() (calls float64) {
		// Of a transaction's beginning and end there is nothing to save.
		require.NoError(t, connection.QueryRow(t.Context(),
			"SELECT coalesce(sum(calls), 0) FROM pg_stat_statements WHERE query !~* '^(begin|commit)' AND query !~ 'pg_stat_statements'").Scan(&calls))
		return calls
	}
	before := statements()
	for range many {
		submit(t, store, job())
	}
	budget.Check(t, "jobservice.statements", (statements()-before)/many)
}
