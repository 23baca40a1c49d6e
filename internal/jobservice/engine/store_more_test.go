package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/engine"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

func lists(t *testing.T, b *backend) {
	store := b.open(t)
	var all []*jobs.Job
	for i := range 12 {
		all = append(all, job(withPriority(i*5), func(j *jobs.Job) {
			j.Namespace = fmt.Sprintf("team-%d", i%3)
			if i%2 == 0 {
				j.Type = "training"
			}
			if i%4 == 0 {
				j.Queue = "slow"
			}
		}))
	}
	submit(t, store, all...)
	_, err := store.Cancel(t.Context(), all[5].ID, "ann")
	require.NoError(t, err)
	for name, test := range map[string]struct {
		filter jobs.Filter
		match  func(i int) bool
	}{
		"all":           {match: func(int) bool { return true }},
		"namespaces":    {jobs.Filter{Namespaces: []string{"team-0", "team-2"}}, func(i int) bool { return i%3 != 1 }},
		"no namespace":  {jobs.Filter{Namespaces: []string{}}, func(int) bool { return false }},
		"status":        {jobs.Filter{Status: jobs.Cancelled}, func(i int) bool { return i == 5 }},
		"type":          {jobs.Filter{Type: "training"}, func(i int) bool { return i%2 == 0 }},
		"queue":         {jobs.Filter{Queue: "slow"}, func(i int) bool { return i%4 == 0 }},
		"priority":      {jobs.Filter{PriorityMin: 30}, func(i int) bool { return i >= 6 }},
		"several":       {jobs.Filter{Type: "training", PriorityMin: 10, Status: jobs.Queued}, func(i int) bool { return i%2 == 0 && i >= 2 }},
		"none":          {jobs.Filter{Queue: "none"}, func(int) bool { return false }},
		"page":          {jobs.Filter{Limit: 5, Offset: 3}, func(int) bool { return true }},
		"after the end": {jobs.Filter{Limit: 5, Offset: 100}, func(int) bool { return true }},
	} {
		t.Run(name, func(t *testing.T) {
			expected := []string{}
			for i := len(all) - 1; i >= 0; i-- {
				if test.match(i) {
					expected = append(expected, all[i].ID)
				}
			}
			total := len(expected)
			expected = expected[min(test.filter.Offset, len(expected)):]
			if test.filter.Limit > 0 {
				expected = expected[:min(test.filter.Limit, len(expected))]
			}
			items, n, err := store.List(t.Context(), test.filter)
			require.NoError(t, err)
			require.Equal(t, total, n)
			got := []string{}
			for _, item := range items {
				got = append(got, item.ID)
			}
			require.Equal(t, expected, got)
		})
	}
}

func figures(t *testing.T, b *backend) {
	store := b.open(t)
	submit(t, store, job(), job(), job(), job(func(j *jobs.Job) { j.Executor = jobs.Kubernetes }))
	leases := lease(t, store, atMost(2, time.Second))
	require.Len(t, leases, 2)
	stats, err := store.Queues(t.Context())
	require.NoError(t, err)
	require.Len(t, stats, 1)
	require.WithinDuration(t, leases[0].Job.CreatedAt, stats[0].OldestQueuedAt, time.Second)
	stats[0].OldestQueuedAt = time.Time{}
	stats[0].AverageWait = 0
	require.Equal(t, jobs.QueueStats{Name: "inference", Depth: 2, Processing: 2, PoolDepth: 1, PoolProcessing: 2}, stats[0])

	_, err = store.Complete(t.Context(), leases[0].Job.ID, leases[0].Fence, nil)
	require.NoError(t, err)
	_, err = store.Fail(t.Context(), leases[1].Job.ID, leases[1].Fence, jobs.Failure{Message: "no"})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		stats, err := store.Queues(t.Context())
		require.NoError(t, err)
		return stats[0].Processed1h == 2 && stats[0].AverageWait > 0 && stats[0].AverageExecution > 0 && stats[0].Processing == 0
	}, time.Minute, 20*time.Millisecond)
	require.Eventually(t, func() bool {
		m, err := store.Metrics(t.Context())
		require.NoError(t, err)
		return m.Submitted == 4 && m.Completed == 1 && m.Failed == 1 && m.DispatchP50 > 0 && m.DispatchP99 >= m.DispatchP50 &&
			m.ExecutionP50 > 0 && m.SubmittedPerSecond > 0 && m.PerSecond > 0
	}, time.Minute, 20*time.Millisecond)
}

func audits(t *testing.T, b *backend) {
	store := b.open(t)
	var group sync.WaitGroup
	for i := range 50 {
		group.Go(func() {
			err := store.Audit(t.Context(), jobs.AuditEntry{
				Time: time.Now(), User: "ann", Action: "jobs.create", Namespace: "team-a", RequestID: fmt.Sprint(i), Status: 201, Message: "\xff\x00",
			})
			require.NoError(t, err)
		})
	}
	group.Wait()
}

func retention(t *testing.T, b *backend) {
	store := b.open(t, func(o *engine.Options) { o.Retention = time.Millisecond })
	ended, open := job(), job(withPriority(1))
	submit(t, store, ended, open)
	l := lease(t, store)[0]
	_, err := store.Complete(t.Context(), l.Job.ID, l.Fence, nil)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, total, err := store.List(t.Context(), jobs.Filter{})
		return err == nil && total == 1
	}, time.Minute, 50*time.Millisecond)
	_, err = store.Get(t.Context(), ended.ID)
	require.ErrorIs(t, err, jobs.ErrNotFound)
	_, err = store.Get(t.Context(), open.ID)
	require.NoError(t, err)
}

// concurrency: submitters, workers and cancellers at once, on two replicas where there can be two.
func concurrency(t *testing.T, b *backend) {
	// Longer than a machine stands still: no lease is to be over.
	long := func(o *engine.Options) { o.Visibility = 5 * time.Minute }
	stores := []*engine.Store{b.open(t, long)}
	if b.postgres != nil {
		stores = append(stores, b.open(t, long))
	}
	const n = 600
	var (
		mutex  sync.Mutex
		fences = map[string][]int64{}
		ended  = map[string]int{}
		group  sync.WaitGroup
	)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for i := range 8 {
		group.Go(func() {
			for range n / 8 / 5 {
				batch := []*jobs.Job{job(), job(), job(), job(), job()}
				positions, err := stores[i%len(stores)].Submit(ctx, batch)
				require.NoError(t, err)
				require.Len(t, positions, 5)
			}
		})
	}
	for i := range 8 {
		group.Go(func() {
			store := stores[i%len(stores)]
			for {
				leases, err := store.Lease(ctx, jobs.LeaseRequest{
					Queue: "inference", Executor: jobs.Pool, Worker: fmt.Sprint(i), Limit: 1 + i, Wait: time.Second,
				})
				if ctx.Err() != nil {
					return
				}
				require.NoError(t, err)
				for k, l := range leases {
					mutex.Lock()
					fences[l.Job.ID] = append(fences[l.Job.ID], l.Fence)
					mutex.Unlock()
					if (k+i)%5 == 0 && l.Job.RetryCount == 0 {
						_, err := store.Fail(ctx, l.Job.ID, l.Fence, jobs.Failure{Message: "again", Retryable: true})
						require.NoError(t, err)
						continue
					}
					_, err := store.Complete(ctx, l.Job.ID, l.Fence, json.RawMessage(`{}`))
					require.NoError(t, err)
					mutex.Lock()
					ended[l.Job.ID]++
					if len(ended) == n {
						stop()
					}
					mutex.Unlock()
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { group.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(3 * time.Minute):
		stop()
		<-done
		t.Fatalf("only %d of %d jobs have ended", len(ended), n)
	}
	for id, all := range fences {
		require.Equal(t, 1, ended[id])
		for i, fence := range all {
			require.EqualValues(t, i+1, fence, "fences of %s: %v", id, all)
		}
	}
	_, total, err := stores[0].List(t.Context(), jobs.Filter{Status: jobs.Succeeded, Limit: 1})
	require.NoError(t, err)
	require.Equal(t, n, total)
}

func reopen(t *testing.T, b *backend) {
	store := b.open(t)
	waiting, running, late := job(withPriority(10)), job(withPriority(90)), job(withPriority(80))
	submit(t, store, waiting, running, late)
	l := lease(t, store)[0]
	again := lease(t, store)[0]
	require.Equal(t, late.ID, again.Job.ID)
	_, err := store.Fail(t.Context(), late.ID, again.Fence, jobs.Failure{Message: "again", Retryable: true})
	require.NoError(t, err)
	store.Close()

	store = b.open(t)
	_, stop, err := store.Heartbeat(t.Context(), running.ID, l.Fence)
	require.NoError(t, err, "the worker goes on with its lease")
	require.False(t, stop)
	got := map[string]bool{}
	for len(got) < 2 {
		for _, l := range lease(t, store, atMost(10, 5*time.Second)) {
			got[l.Job.ID] = true
		}
	}
	require.Equal(t, map[string]bool{waiting.ID: true, late.ID: true}, got)
	_, err = store.Complete(t.Context(), running.ID, l.Fence, nil)
	require.NoError(t, err)
}

func badValues(t *testing.T, b *backend) {
	store := b.open(t)
	var group sync.WaitGroup
	for i := range 20 {
		group.Go(func() {
			j := job()
			if i%2 == 0 {
				j.Config = json.RawMessage([]string{`{"a":`, "{\"a\":\"\xff\"}", `{} {}`}[i%3])
			} else {
				j.Config = json.RawMessage(`{"nul":"\u0000", "big": 123456789012345678901234567890}`)
			}
			_, err := store.Submit(t.Context(), []*jobs.Job{j})
			require.Equal(t, i%2 == 0, err != nil, "%v", err)
		})
	}
	group.Wait()
	for _, bad := range []func(*jobs.Job){
		func(j *jobs.Job) { j.Submitter = "\xff" },
		func(j *jobs.Job) { j.Type = "" },
		func(j *jobs.Job) { j.Type = "a/b" },
		func(j *jobs.Job) { j.Executor = "lambda" },
		func(j *jobs.Job) { j.Priority = 101 },
	} {
		_, err := store.Submit(t.Context(), []*jobs.Job{job(), job(bad)})
		require.Error(t, err)
		require.NotErrorIs(t, err, jobs.ErrUnavailable)
	}
	_, total, err := store.List(t.Context(), jobs.Filter{Limit: 1})
	require.NoError(t, err)
	require.Equal(t, 10, total, "a submission is accepted whole or not at all")
	got := lease(t, store)[0]
	require.JSONEq(t, `{"nul":"\u0000", "big": 123456789012345678901234567890}`, string(got.Job.Config))
}

// gone: workers give up while a job is on its way to them.
func gone(t *testing.T, b *backend) {
	store := b.open(t)
	const n = 40
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Millisecond)
			defer cancel()
			leases, err := store.Lease(ctx, jobs.LeaseRequest{Queue: "inference", Executor: jobs.Pool, Worker: "w", Limit: 1, Wait: time.Minute})
			if err != nil {
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
			for _, l := range leases {
				_, err := store.Complete(t.Context(), l.Job.ID, l.Fence, nil)
				require.NoError(t, err)
			}
		})
	}
	for range n {
		submit(t, store, job())
	}
	group.Wait()
	require.Eventually(t, func() bool {
		for _, l := range lease(t, store, atMost(100, 0)) {
			require.Zero(t, l.Job.RetryCount)
			_, err := store.Complete(t.Context(), l.Job.ID, l.Fence, nil)
			require.NoError(t, err)
		}
		_, total, err := store.List(t.Context(), jobs.Filter{Status: jobs.Succeeded, Limit: 1})
		return err == nil && total == n
	}, time.Minute, 10*time.Millisecond)
}
