package engine_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/engine"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
	"github.com/dcnlab/spot-training-operator/test/harness/postgres"
	"github.com/dcnlab/spot-training-operator/test/harness/redis"
)

var both *backend

// shared are servers for all tests of the package that do them no harm.
func shared(t *testing.T) *backend {
	if both == nil {
		t.Fatal("TestMain has not started the servers")
	}
	return both
}

func TestStore(t *testing.T) {
	both = &backend{postgres: postgres.Start(t), redis: redis.Start(t)}
	both.options.DatabaseURL, both.options.RedisURL = both.postgres.URL, both.redis.URL
	for name, test := range map[string]func(*testing.T, *backend){
		"a job lives from its submission to its result":           lifeOfAJob,
		"what is not there is not found":                          notFound,
		"the highest priority goes first, then the oldest":        order,
		"a worker gets only the types that it can do":             types,
		"a failed job is tried again after a delay, then is dead": retries,
		"a dead job is requeued with all its retries":             requeues,
		"a failure that is not retryable ends the job":            failsFinally,
		"a cancelled job ends, and its worker learns it":          cancels,
		"a lease that is over goes to another worker":             expires,
		"a worker waits for a job, and gets it at once":           waits,
		"an AIJob's lease is taken up again":                      kubernetes,
		"lists are filtered, and say how many match":              lists,
		"figures of queues and of the day":                        figures,
		"audit":                                                   audits,
		"jobs that ended long ago are deleted":                    retention,
		"many workers never share a job":                          concurrency,
		"a store that is opened again has all jobs":               reopen,
		"bad values spoil nothing for others":                     badValues,
		"a worker that has gone leaves no job behind":             gone,
		"namespaces take turns in a queue for Kubernetes":         turns,
		"turns are fair whatever waits":                           fair,
		"turns are the same after all that happens to jobs":       turnsAfterwards,
		"a namespace without a turn keeps none waiting":           turnsWake,
		"turns begin with data of a version without them":         turnsUpgrade,
		"lines of namespaces do not pile up":                      linesEnd,
	} {
		t.Run(name, func(t *testing.T) { eachBackend(t, test) })
	}
}

func lifeOfAJob(t *testing.T, b *backend) {
	store := b.open(t)
	first, second := job(), job()
	require.Equal(t, []int{1, 2}, submit(t, store, first, second))
	_, err := uuid.Parse(first.ID)
	require.NoError(t, err)
	require.Equal(t, jobs.Queued, first.Status)
	require.WithinDuration(t, time.Now(), first.CreatedAt, 5*time.Second)

	got, err := store.Get(t.Context(), first.ID)
	require.NoError(t, err)
	require.Equal(t, *first, got)

	leases := lease(t, store)
	require.Len(t, leases, 1)
	l := leases[0]
	require.Equal(t, first.ID, l.Job.ID)
	require.EqualValues(t, 1, l.Fence)
	require.Equal(t, jobs.Running, l.Job.Status)
	require.JSONEq(t, `{"input":"x"}`, string(l.Job.Config))
	require.WithinDuration(t, time.Now().Add(10*time.Second), l.ExpiresAt, 2*time.Second)
	require.Equal(t, 10*time.Second, l.Visibility)

	over, stop, err := store.Heartbeat(t.Context(), l.Job.ID, l.Fence)
	require.NoError(t, err)
	require.False(t, stop)
	require.False(t, over.Before(l.ExpiresAt))
	_, _, err = store.Heartbeat(t.Context(), l.Job.ID, l.Fence+1)
	require.ErrorIs(t, err, jobs.ErrLeaseLost)
	_, err = store.Complete(t.Context(), l.Job.ID, l.Fence+1, nil)
	require.ErrorIs(t, err, jobs.ErrLeaseLost)

	ended, err := store.Complete(t.Context(), l.Job.ID, l.Fence, json.RawMessage(`{"answer": 42}`))
	require.NoError(t, err)
	require.Equal(t, jobs.Succeeded, ended.Status)
	require.JSONEq(t, `{"answer": 42}`, string(ended.Result))
	require.Equal(t, "worker-1", ended.WorkerID)
	require.False(t, ended.CompletedAt.Before(ended.StartedAt))

	// Said again it is no error, and nothing else can be said of it.
	again, err := store.Complete(t.Context(), l.Job.ID, l.Fence, json.RawMessage(`{"answer": 43}`))
	require.NoError(t, err)
	require.JSONEq(t, `{"answer": 42}`, string(again.Result))
	_, err = store.Fail(t.Context(), l.Job.ID, l.Fence, jobs.Failure{Message: "no"})
	require.ErrorIs(t, err, jobs.ErrLeaseLost)
	_, _, err = store.Heartbeat(t.Context(), l.Job.ID, l.Fence)
	require.ErrorIs(t, err, jobs.ErrLeaseLost)
	_, err = store.Cancel(t.Context(), l.Job.ID, "ann")
	require.ErrorIs(t, err, jobs.ErrEnded)
}

func notFound(t *testing.T, b *backend) {
	store := b.open(t)
	for _, id := range []string{uuid.NewString(), "no-uuid", ""} {
		_, err := store.Get(t.Context(), id)
		require.ErrorIs(t, err, jobs.ErrNotFound)
		_, err = store.Cancel(t.Context(), id, "ann")
		require.ErrorIs(t, err, jobs.ErrNotFound)
		_, err = store.Requeue(t.Context(), id, "ann")
		require.ErrorIs(t, err, jobs.ErrNotFound)
		_, _, err = store.Heartbeat(t.Context(), id, 1)
		require.ErrorIs(t, err, jobs.ErrNotFound)
		require.ErrorIs(t, store.Phase(t.Context(), id, 1, jobs.Running), jobs.ErrNotFound)
		_, err = store.Complete(t.Context(), id, 1, nil)
		require.ErrorIs(t, err, jobs.ErrNotFound)
		_, err = store.Fail(t.Context(), id, 1, jobs.Failure{})
		require.ErrorIs(t, err, jobs.ErrNotFound)
	}
	positions, err := store.Submit(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, positions)
	require.Empty(t, lease(t, store, atMost(10, 0)))
}

func withPriority(p int) func(*jobs.Job) { return func(j *jobs.Job) { j.Priority = p } }

func withType(name string) func(*jobs.Job) { return func(j *jobs.Job) { j.Type = name } }

func order(t *testing.T, b *backend) {
	store := b.open(t)
	low, high, middle, old := job(withPriority(0)), job(withPriority(100), withType("training")), job(withPriority(50)), job(withPriority(100))
	require.Equal(t, []int{1}, submit(t, store, old))
	require.Equal(t, []int{2}, submit(t, store, low))
	require.Equal(t, []int{2}, submit(t, store, middle))
	time.Sleep(2 * time.Millisecond) // ages differ in milliseconds
	require.Equal(t, []int{2}, submit(t, store, high))
	var got []string
	for _, l := range lease(t, store, atMost(3, time.Second)) {
		got = append(got, l.Job.ID)
	}
	for _, l := range lease(t, store, atMost(3, time.Second)) {
		got = append(got, l.Job.ID)
	}
	require.Equal(t, []string{old.ID, high.ID, middle.ID, low.ID}, got)
}

func types(t *testing.T, b *backend) {
	store := b.open(t)
	a, bb, c := job(withType("inference")), job(withType("training")), job(withType("simulation"))
	submit(t, store, a, bb, c)
	only := func(names ...string) func(*jobs.LeaseRequest) {
		return func(r *jobs.LeaseRequest) { r.Types, r.Limit, r.Wait = names, 10, 0 }
	}
	require.Empty(t, lease(t, store, only("evaluation")))
	require.Empty(t, lease(t, store, func(r *jobs.LeaseRequest) { r.Executor, r.Wait = jobs.Kubernetes, 0 }))
	require.Empty(t, lease(t, store, func(r *jobs.LeaseRequest) { r.Queue, r.Wait = "other", 0 }))
	got := lease(t, store, only("simulation"))
	require.Len(t, got, 1)
	require.Equal(t, c.ID, got[0].Job.ID)
	got = lease(t, store, only("training", "inference"))
	require.Len(t, got, 2)
}

func retries(t *testing.T, b *backend) {
	store := b.open(t)
	j := job()
	submit(t, store, j)
	for try := range 3 {
		l := lease(t, store)[0]
		require.EqualValues(t, try+1, l.Fence)
		require.Equal(t, try, l.Job.RetryCount)
		before := time.Now()
		failed, err := store.Fail(t.Context(), l.Job.ID, l.Fence, jobs.Failure{Message: "out of memory\x00", Retryable: true})
		require.NoError(t, err)
		require.Equal(t, "out of memory\uFFFD", failed.Error)
		again, err := store.Fail(t.Context(), l.Job.ID, l.Fence, jobs.Failure{Message: "else", Retryable: true})
		require.NoError(t, err, "saying it again is no error")
		require.Equal(t, failed, again)
		if try == 2 {
			require.Equal(t, jobs.DeadLetter, failed.Status)
			require.False(t, failed.CompletedAt.IsZero())
			break
		}
		require.Equal(t, jobs.Retrying, failed.Status)
		require.Equal(t, try+1, failed.RetryCount)
		expected := 50 * time.Millisecond << try
		require.WithinRange(t, failed.NextRetryAt, before.Add(expected/2), time.Now().Add(expected*3/2), "a part of the delay is random")
	}
	require.Empty(t, lease(t, store, atMost(1, 300*time.Millisecond)))
}

func requeues(t *testing.T, b *backend) {
	store := b.open(t)
	j := job(func(j *jobs.Job) { j.Retry.MaxRetries = 0 })
	submit(t, store, j)
	_, err := store.Requeue(t.Context(), j.ID, "ann")
	require.ErrorIs(t, err, jobs.ErrNotDeadLetter)
	l := lease(t, store)[0]
	_, err = store.Fail(t.Context(), j.ID, l.Fence, jobs.Failure{Message: "no", Retryable: true})
	require.NoError(t, err)
	back, err := store.Requeue(t.Context(), j.ID, "ann")
	require.NoError(t, err)
	require.Equal(t, jobs.Queued, back.Status)
	require.Zero(t, back.RetryCount)
	require.Zero(t, back.CompletedAt)
	next := lease(t, store)[0]
	require.Equal(t, j.ID, next.Job.ID)
	require.Greater(t, next.Fence, l.Fence)
	_, err = store.Complete(t.Context(), j.ID, l.Fence, nil)
	require.ErrorIs(t, err, jobs.ErrLeaseLost)
	_, err = store.Complete(t.Context(), j.ID, next.Fence, nil)
	require.NoError(t, err)
}

func failsFinally(t *testing.T, b *backend) {
	store := b.open(t)
	submit(t, store, job())
	l := lease(t, store)[0]
	failed, err := store.Fail(t.Context(), l.Job.ID, l.Fence, jobs.Failure{Message: "no such model"})
	require.NoError(t, err)
	require.Equal(t, jobs.Failed, failed.Status)
	_, err = store.Requeue(t.Context(), l.Job.ID, "ann")
	require.ErrorIs(t, err, jobs.ErrNotDeadLetter)
}

func cancels(t *testing.T, b *backend) {
	store := b.open(t)
	waiting, running := job(), job(withPriority(90))
	submit(t, store, waiting, running)
	l := lease(t, store)[0]
	require.Equal(t, running.ID, l.Job.ID)
	for _, id := range []string{waiting.ID, running.ID} {
		cancelled, err := store.Cancel(t.Context(), id, "ann")
		require.NoError(t, err)
		require.Equal(t, jobs.Cancelled, cancelled.Status)
		require.False(t, cancelled.CompletedAt.IsZero())
		_, err = store.Cancel(t.Context(), id, "ann")
		require.ErrorIs(t, err, jobs.ErrEnded)
	}
	_, stop, err := store.Heartbeat(t.Context(), l.Job.ID, l.Fence)
	require.NoError(t, err)
	require.True(t, stop)
	_, err = store.Complete(t.Context(), l.Job.ID, l.Fence, nil)
	require.ErrorIs(t, err, jobs.ErrLeaseLost)
	require.Empty(t, lease(t, store, atMost(10, 100*time.Millisecond)))
}

func shortLeases(o *engine.Options) { o.Visibility = time.Second }

func expires(t *testing.T, b *backend) {
	store := b.open(t, shortLeases)
	j := job(func(j *jobs.Job) { j.Retry.MaxRetries = 1 })
	submit(t, store, j)
	first := lease(t, store)[0]
	second := lease(t, store)[0]
	require.Equal(t, j.ID, second.Job.ID)
	require.Greater(t, second.Fence, first.Fence)
	require.Equal(t, 1, second.Job.RetryCount)
	require.False(t, time.Now().Before(first.ExpiresAt), "the first lease was valid still")
	_, err := store.Complete(t.Context(), j.ID, first.Fence, nil)
	require.ErrorIs(t, err, jobs.ErrLeaseLost)
	_, _, err = store.Heartbeat(t.Context(), j.ID, first.Fence)
	require.ErrorIs(t, err, jobs.ErrLeaseLost)
	for range 5 { // heartbeats keep it
		time.Sleep(250 * time.Millisecond)
		_, _, err := store.Heartbeat(t.Context(), j.ID, second.Fence)
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool {
		now, err := store.Get(t.Context(), j.ID)
		return err == nil && now.Status == jobs.DeadLetter && now.Error != ""
	}, time.Minute, 10*time.Millisecond)
}

func waits(t *testing.T, b *backend) {
	store := b.open(t)
	other := store
	if b.postgres != nil {
		other = b.open(t) // another replica
	}
	got := make(chan time.Time, 1)
	go func() {
		if leases, err := store.Lease(t.Context(), jobs.LeaseRequest{
			Queue: "inference", Executor: jobs.Pool, Worker: "w", Limit: 1, Wait: 10 * time.Second,
		}); err == nil && len(leases) == 1 {
			got <- time.Now()
		}
		close(got)
	}()
	time.Sleep(100 * time.Millisecond)
	submit(t, other, job())
	submitted := time.Now()
	at, ok := <-got
	require.True(t, ok)
	require.Less(t, at.Sub(submitted), 5*time.Second, "at once, not at the end of the wait")
}

func kubernetes(t *testing.T, b *backend) {
	store := b.open(t, shortLeases)
	j := job(func(j *jobs.Job) {
		j.Executor, j.Image = jobs.Kubernetes, "registry.example.com/train:v1"
		j.Gang = jobs.Gang{Enabled: true, MinMembers: 4, Topology: "rack"}
	})
	submit(t, store, j)
	pods := func(r *jobs.LeaseRequest) { r.Executor, r.Worker = jobs.Kubernetes, "dispatcher" }
	first := lease(t, store, pods)[0]
	require.Equal(t, j.Gang, first.Job.Gang)
	require.Equal(t, jobs.Queued, first.Job.Status)
	require.NoError(t, store.Phase(t.Context(), j.ID, first.Fence, jobs.Scheduled))
	require.NoError(t, store.Phase(t.Context(), j.ID, first.Fence, jobs.Running))
	require.Error(t, store.Phase(t.Context(), j.ID, first.Fence, jobs.Succeeded))

	second := lease(t, store, pods)[0] // the first dispatcher was not heard of
	require.Equal(t, j.ID, second.Job.ID)
	require.Equal(t, jobs.Running, second.Job.Status)
	require.Zero(t, second.Job.RetryCount, "nothing was lost but who watches it")
	require.False(t, second.Job.StartedAt.IsZero())
	require.ErrorIs(t, store.Phase(t.Context(), j.ID, first.Fence, jobs.Retrying), jobs.ErrLeaseLost)
	failed, err := store.Fail(t.Context(), j.ID, second.Fence, jobs.Failure{Message: "retries used up", Retryable: true})
	require.NoError(t, err)
	require.Equal(t, jobs.DeadLetter, failed.Status)
}
