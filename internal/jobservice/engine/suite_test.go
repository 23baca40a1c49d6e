package engine_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/engine"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
	"github.com/dcnlab/spot-training-operator/test/harness/jobstore"
	"github.com/dcnlab/spot-training-operator/test/harness/postgres"
	"github.com/dcnlab/spot-training-operator/test/harness/redis"
)

// backend opens stores over the same servers or the same folder.
type backend struct {
	postgres *postgres.Server
	redis    *redis.Server
	options  engine.Options
}

func embedded(t testing.TB) *backend {
	return &backend{options: engine.Options{DataDir: t.TempDir()}}
}

// fresh has a database of its own on the same servers, or a folder of its own.
func (b *backend) fresh(t testing.TB) *backend {
	if b.postgres == nil {
		return embedded(t)
	}
	connection, err := pgx.Connect(t.Context(), b.postgres.URL)
	require.NoError(t, err)
	defer func() { _ = connection.Close(t.Context()) }()
	name := fmt.Sprintf("test%d", time.Now().UnixNano())
	_, err = connection.Exec(t.Context(), "CREATE DATABASE "+name)
	require.NoError(t, err)
	other := *b
	// Another epoch in the same Redis: the stores of one test are closed before the next begins.
	other.options.DatabaseURL = strings.Replace(b.postgres.URL, "/postgres?", "/"+name+"?", 1)
	return &other
}

func (b *backend) open(t testing.TB, change ...func(*engine.Options)) *engine.Store {
	t.Helper()
	options := b.options
	options.Visibility = 10 * time.Second
	options.TickInterval = 20 * time.Millisecond
	options.RetryDelay = 50 * time.Millisecond
	options.OperationTimeout = 20 * time.Second // longer than a busy machine stands still
	for _, c := range change {
		c(&options)
	}
	return jobstore.Open(t, options)
}

// eachBackend runs a test against both.
func eachBackend(t *testing.T, test func(t *testing.T, b *backend)) {
	t.Run("SQLite", func(t *testing.T) { test(t, embedded(t)) })
	t.Run("PostgreSQL and Redis", func(t *testing.T) { test(t, shared(t).fresh(t)) })
}

func job(change ...func(*jobs.Job)) *jobs.Job {
	j := &jobs.Job{
		Namespace: "team-a", Queue: "inference", Type: "inference", Executor: jobs.Pool, Priority: 50, Submitter: "ann", SubmitterGroups: []string{"ml", "system:authenticated"},
		Config: json.RawMessage(`{"input":"x"}`), Resources: jobs.Resources{CPU: "500m", Memory: "1Gi", GPU: 1},
		Timeout: time.Minute, Retry: jobs.Retry{MaxRetries: 2, BackoffMultiplier: 2},
	}
	for _, c := range change {
		c(j)
	}
	return j
}

func submit(t testing.TB, store jobs.Store, all ...*jobs.Job) []int {
	t.Helper()
	positions, err := store.Submit(t.Context(), all)
	require.NoError(t, err)
	return positions
}

func lease(t testing.TB, store jobs.Store, change ...func(*jobs.LeaseRequest)) []jobs.Lease {
	t.Helper()
	request := jobs.LeaseRequest{Queue: "inference", Executor: jobs.Pool, Worker: "worker-1", Limit: 1, Wait: 5 * time.Second}
	for _, c := range change {
		c(&request)
	}
	leases, err := store.Lease(t.Context(), request)
	require.NoError(t, err)
	return leases
}

func atMost(n int, wait time.Duration) func(*jobs.LeaseRequest) {
	return func(r *jobs.LeaseRequest) { r.Limit, r.Wait = n, wait }
}
