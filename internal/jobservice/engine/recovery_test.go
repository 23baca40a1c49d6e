package engine_test

import (
	"testing"
	"time"

	client "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/engine"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
	"github.com/dcnlab/spot-training-operator/test/harness/postgres"
	"github.com/dcnlab/spot-training-operator/test/harness/redis"
)

func TestWhatRedisLosesComesBackFromTheDatabase(t *testing.T) {
	server := postgres.Start(t)
	for name, test := range map[string]struct {
		options []redis.Option
		lose    func(t *testing.T, r *redis.Server)
	}{
		"killed without its data": {nil, func(_ *testing.T, r *redis.Server) { r.Kill(); r.Start() }},
		"killed with its data":    {[]redis.Option{redis.AppendOnly}, func(_ *testing.T, r *redis.Server) { r.Kill(); r.Start() }},
		"emptied": {nil, func(t *testing.T, r *redis.Server) {
			c := client.NewClient(&client.Options{Addr: r.Address})
			defer func() { _ = c.Close() }()
			require.NoError(t, c.FlushAll(t.Context()).Err())
		}},
		"without its scripts": {nil, func(t *testing.T, r *redis.Server) {
			c := client.NewClient(&client.Options{Addr: r.Address})
			defer func() { _ = c.Close() }()
			require.NoError(t, c.ScriptFlush(t.Context()).Err())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := redis.Start(t, test.options...)
			b := (&backend{postgres: server, redis: r, options: engine.Options{DatabaseURL: server.URL, RedisURL: r.URL}}).fresh(t)
			store := b.open(t)
			running, waiting, failed := job(withPriority(90)), job(withPriority(10)), job(withPriority(80))
			submit(t, store, running, waiting, failed)
			held, again := lease(t, store)[0], lease(t, store)[0]
			_, err := store.Fail(t.Context(), failed.ID, again.Fence, jobs.Failure{Message: "again", Retryable: true})
			require.NoError(t, err)

			test.lose(t, r)
			late := job(withPriority(20))
			submit(t, store, late)

			got := map[string]bool{}
			for len(got) < 3 {
				for _, l := range lease(t, store, atMost(10, 10*time.Second)) {
					require.False(t, got[l.Job.ID])
					got[l.Job.ID] = true
				}
			}
			require.Equal(t, map[string]bool{waiting.ID: true, failed.ID: true, late.ID: true}, got)
			_, stop, err := store.Heartbeat(t.Context(), running.ID, held.Fence)
			require.NoError(t, err, "the worker keeps its lease")
			require.False(t, stop)
			_, err = store.Complete(t.Context(), running.ID, held.Fence, nil)
			require.NoError(t, err)
		})
	}
}

func TestCallersAreNotLeftHanging(t *testing.T) {
	b := &backend{postgres: postgres.Start(t), redis: redis.Start(t)}
	b.options.DatabaseURL, b.options.RedisURL = b.postgres.URL, b.redis.URL
	store := b.open(t, func(o *engine.Options) { o.OperationTimeout = time.Second })
	submit(t, store, job())
	held := lease(t, store)[0]
	soon := func(what string, do func() error) {
		begun := time.Now()
		require.ErrorIs(t, do(), jobs.ErrUnavailable, what)
		require.Less(t, time.Since(begun), 5*time.Second, what)
	}
	one := jobs.LeaseRequest{Queue: "inference", Executor: jobs.Pool, Worker: "w", Limit: 1, Wait: 300 * time.Millisecond}

	b.redis.Kill()
	positions, err := store.Submit(t.Context(), []*jobs.Job{job(), job()})
	require.NoError(t, err, "jobs are accepted without Redis")
	require.Equal(t, []int{1, 2}, positions)
	soon("lease without Redis", func() error { _, err := store.Lease(t.Context(), one); return err })
	soon("heartbeat without Redis", func() error { _, _, err := store.Heartbeat(t.Context(), held.Job.ID, held.Fence); return err })
	require.Error(t, store.Check(t.Context())["redis"])
	require.NoError(t, store.Check(t.Context())["database"])
	b.redis.Start()
	require.Eventually(t, func() bool { return store.Check(t.Context())["redis"] == nil }, time.Minute, 10*time.Millisecond)
	require.Len(t, lease(t, store, atMost(2, 5*time.Second)), 2)

	b.postgres.Kill()
	_, _, err = store.Heartbeat(t.Context(), held.Job.ID, held.Fence)
	require.NoError(t, err, "workers keep what they have without the database")
	soon("submit", func() error { _, err := store.Submit(t.Context(), []*jobs.Job{job()}); return err })
	soon("get", func() error { _, err := store.Get(t.Context(), held.Job.ID); return err })
	soon("list", func() error { _, _, err := store.List(t.Context(), jobs.Filter{}); return err })
	soon("cancel", func() error { _, err := store.Cancel(t.Context(), held.Job.ID, "ann"); return err })
	soon("complete", func() error { _, err := store.Complete(t.Context(), held.Job.ID, held.Fence, nil); return err })
	soon("queues", func() error { _, err := store.Queues(t.Context()); return err })
	soon("audit", func() error { return store.Audit(t.Context(), jobs.AuditEntry{Action: "jobs.get"}) })
	require.Error(t, store.Check(t.Context())["database"])
	b.postgres.Start()
	require.Eventually(t, func() bool {
		_, err := store.Complete(t.Context(), held.Job.ID, held.Fence, nil)
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	_, total, err := store.List(t.Context(), jobs.Filter{Limit: 1})
	require.NoError(t, err)
	require.Equal(t, 3, total, "what no caller waits for any more is not submitted afterwards")
}

func TestOptionsAreChecked(t *testing.T) {
	for name, options := range map[string]engine.Options{
		"neither a folder nor servers": {},
		"a database without Redis":     {DatabaseURL: "postgres://localhost/jobs"},
		"Redis without a database":     {RedisURL: "redis://localhost"},
		"a replica without a database": {DataDir: t.TempDir(), ReplicaURL: "postgres://localhost/jobs"},
		"a negative duration":          {DataDir: t.TempDir(), Visibility: -1},
		"no folder":                    {DataDir: "/proc/nothing"},
		"no URL":                       {DatabaseURL: "::", RedisURL: "redis://localhost"},
	} {
		_, err := engine.New(t.Context(), options)
		require.Error(t, err, name)
	}
	folder := t.TempDir()
	store, err := engine.New(t.Context(), engine.Options{DataDir: folder})
	require.NoError(t, err)
	defer store.Close()
	_, err = engine.New(t.Context(), engine.Options{DataDir: folder})
	require.ErrorContains(t, err, "in use by another process")
}
