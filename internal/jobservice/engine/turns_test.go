package engine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	client "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/engine"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

// of are n jobs for Kubernetes of a namespace.
func of(namespace string, n int, change ...func(*jobs.Job)) []*jobs.Job {
	var all []*jobs.Job
	for range n {
		all = append(all, job(append(change, func(j *jobs.Job) {
			j.Namespace, j.Executor, j.Image = namespace, jobs.Kubernetes, "registry.example.com/train:v1"
		})...))
	}
	return all
}

// turn is one request of a dispatcher.
func turn(limit int, shares ...jobs.Share) func(*jobs.LeaseRequest) {
	return func(r *jobs.LeaseRequest) { r.Executor, r.Limit, r.Wait, r.Shares = jobs.Kubernetes, limit, 0, shares }
}

// perNamespace counts leased jobs.
func perNamespace(leases []jobs.Lease) map[string]int {
	counts := map[string]int{}
	for _, l := range leases {
		counts[l.Job.Namespace]++
	}
	return counts
}

func turns(t *testing.T, b *backend) {
	store := b.open(t)
	type counts = map[string]int
	type held = map[string]int
	for name, test := range map[string]struct {
		waiting  counts
		shares   []jobs.Share
		limit    int
		expected counts
	}{
		"one alone may have all":        {counts{"a": 20}, []jobs.Share{{Places: 12}}, 100, counts{"a": 12}},
		"two have a half each":          {counts{"a": 20, "b": 20}, []jobs.Share{{Places: 12}}, 100, counts{"a": 6, "b": 6}},
		"what one leaves others may":    {counts{"a": 20, "b": 3, "c": 1}, []jobs.Share{{Places: 12}}, 100, counts{"a": 8, "b": 3, "c": 1}},
		"what is held counts":           {counts{"a": 20, "b": 20}, []jobs.Share{{Places: 12, Held: held{"a": 5, "b": 1}}}, 100, counts{"a": 1, "b": 5}},
		"the last to come has a part":   {counts{"a": 20, "b": 20}, []jobs.Share{{Places: 12, Held: held{"a": 12}}}, 100, counts{"b": 6}},
		"and so has the next":           {counts{"a": 20, "b": 20, "c": 2}, []jobs.Share{{Places: 12, Held: held{"a": 12, "b": 6}}}, 100, counts{"c": 2}},
		"no more while others have all": {counts{"a": 20}, []jobs.Share{{Places: 12, Held: held{"a": 6, "b": 6}}}, 100, counts{}},
		"nor alone":                     {counts{"a": 20}, []jobs.Share{{Places: 12, Held: held{"a": 12}}}, 100, counts{}},
		"the limit is of all":           {counts{"a": 20, "b": 20}, []jobs.Share{{Places: 12, Held: held{"a": 2}}}, 4, counts{"a": 1, "b": 3}},
		"more namespaces than places":   {counts{"a": 9, "b": 9, "c": 9}, []jobs.Share{{Places: 2, Held: held{"a": 1, "b": 1}}}, 100, counts{"c": 1}},
		"both shares must admit": {
			counts{"a": 20, "b": 20},
			[]jobs.Share{{Places: 12}, {Places: 10, Held: held{"a": 9, "c": 1}}}, 100, counts{"b": 3},
		},
		"without shares each has its turn": {counts{"a": 20, "b": 20}, nil, 5, nil},
	} {
		t.Run(name, func(t *testing.T) {
			queue := strings.ReplaceAll(name, " ", "-")
			for namespace, n := range test.waiting {
				submit(t, store, of(namespace, n, func(j *jobs.Job) { j.Queue = queue })...)
			}
			got := perNamespace(lease(t, store, turn(test.limit, test.shares...), func(r *jobs.LeaseRequest) { r.Queue = queue }))
			if test.expected == nil {
				require.InDelta(t, got["a"], got["b"], 1)
				require.Equal(t, test.limit, got["a"]+got["b"])
				return
			}
			require.Equal(t, test.expected, got)
		})
	}
}

// fair: whatever waits and is held, what is given is what turns give.
func fair(t *testing.T, b *backend) {
	store := b.open(t)
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		queue := fmt.Sprint("queue-", run)
		share := jobs.Share{Places: rapid.IntRange(1, 12).Draw(rt, "places"), Held: map[string]int{}}
		limit := rapid.IntRange(1, 12).Draw(rt, "limit")
		left, total := map[string]int{}, 0
		var all []*jobs.Job
		for i := range rapid.IntRange(1, 5).Draw(rt, "namespaces") {
			namespace := fmt.Sprint("n", i)
			share.Held[namespace] = rapid.IntRange(0, 6).Draw(rt, "held")
			total += share.Held[namespace]
			left[namespace] = rapid.IntRange(0, 6).Draw(rt, "waiting")
			for range left[namespace] {
				priority := rapid.IntRange(0, 3).Draw(rt, "priority")
				kind := rapid.SampledFrom([]string{"training", "inference"}).Draw(rt, "type")
				all = append(all, of(namespace, 1, func(j *jobs.Job) { j.Queue, j.Priority, j.Type = queue, priority, kind })...)
			}
		}
		submit(t, store, all...)
		leases := lease(t, store, turn(limit, share), func(r *jobs.LeaseRequest) { r.Queue = queue })

		contenders := 0
		for namespace, n := range left {
			if n > 0 || share.Held[namespace] > 0 {
				contenders++
			}
		}
		now, last := share.Held, map[string]int{}
		even := max(1, share.Places/max(1, contenders))
		may := func(namespace string) bool {
			return left[namespace] > 0 && (total < share.Places || now[namespace] < even)
		}
		for i, l := range leases {
			namespace := l.Job.Namespace
			require.True(rt, may(namespace), "%s got more than it may: lease %d", namespace, i)
			for other := range left {
				require.False(rt, may(other) && now[other] < now[namespace], "it was the turn of %s, not of %s", other, namespace)
			}
			if before, had := last[namespace]; had {
				require.GreaterOrEqual(rt, before, l.Job.Priority, "the highest priority of a namespace goes first")
			}
			last[namespace] = l.Job.Priority
			now[namespace]++
			left[namespace]--
			total++
		}
		if len(leases) < limit {
			for namespace := range left {
				require.False(rt, may(namespace), "%s could have had more", namespace)
			}
		}
	})
}

// turnsAfterwards: what was given back, requeued, reloaded or cancelled is in its namespace's line as before.
func turnsAfterwards(t *testing.T, b *backend) {
	store := b.open(t, shortLeases)
	a, bb := of("a", 4), of("b", 2)
	submit(t, store, append(a, bb...)...)
	full := jobs.Share{Places: 3, Held: map[string]int{"a": 3}}
	twoOfA := jobs.Share{Places: 2, Held: map[string]int{"b": 2}}

	first := lease(t, store, turn(100, full))
	require.Equal(t, map[string]int{"b": 1}, perNamespace(first))
	failed := first[0]
	_, err := store.Fail(t.Context(), failed.Job.ID, failed.Fence, jobs.Failure{Message: "no", Retryable: true})
	require.NoError(t, err)
	_, err = store.Requeue(t.Context(), failed.Job.ID, "ann")
	require.NoError(t, err)
	_, err = store.Cancel(t.Context(), a[0].ID, "ann")
	require.NoError(t, err)

	// Two of b wait again, and three of a; those without a heartbeat come back.
	for range 3 {
		require.Eventually(t, func() bool {
			return perNamespace(lease(t, store, turn(100, jobs.Share{Places: 5, Held: map[string]int{"a": 3, "b": 1}})))["b"] == 1
		}, time.Minute, 10*time.Millisecond)
	}
	stats, err := store.Queues(t.Context())
	require.NoError(t, err)
	require.Len(t, stats, 1)
	require.Equal(t, 5, stats[0].Depth, "the queue is one, of all namespaces")
	require.Zero(t, stats[0].PoolDepth)

	store.Close()
	store = b.open(t, shortLeases)
	require.Eventually(t, func() bool {
		return perNamespace(lease(t, store, turn(100, twoOfA)))["a"] == 1
	}, time.Minute, 10*time.Millisecond, "the lines are there after all was loaded")
	got := map[string]bool{}
	require.Eventually(t, func() bool {
		for _, l := range lease(t, store, turn(100)) {
			if _, err := store.Complete(t.Context(), l.Job.ID, l.Fence, nil); err == nil {
				got[l.Job.ID] = true
			}
		}
		return len(got) == 5
	}, time.Minute, 10*time.Millisecond)
	require.NotContains(t, got, a[0].ID)
}

// turnsWake: a dispatcher that waits because one namespace has all learns of another's job at once.
func turnsWake(t *testing.T, b *backend) {
	store := b.open(t)
	submit(t, store, of("a", 5)...)
	got := make(chan map[string]int, 1)
	go func() {
		leases, _ := store.Lease(t.Context(), jobs.LeaseRequest{
			Queue: "inference", Executor: jobs.Kubernetes, Worker: "w", Limit: 10, Wait: 10 * time.Second,
			Shares: []jobs.Share{{Places: 4, Held: map[string]int{"a": 4}}},
		})
		got <- perNamespace(leases)
	}()
	time.Sleep(100 * time.Millisecond)
	submitted := time.Now()
	submit(t, store, of("b", 1)...)
	require.Equal(t, map[string]int{"b": 1}, <-got)
	require.Less(t, time.Since(submitted), 5*time.Second, "at once, not at the end of the wait")
	require.Equal(t, map[string]int{"a": 5}, perNamespace(lease(t, store, turn(10))), "another's shares are not in the way")
}

// turnsUpgrade: a Redis that a version loaded in which the namespaces had no lines is reloaded.
func turnsUpgrade(t *testing.T, b *backend) {
	if b.redis == nil {
		return // it is new with each process
	}
	store := b.open(t)
	all := append(of("a", 3), of("b", 3)...)
	submit(t, store, all...)
	store.Close()

	c := client.NewClient(&client.Options{Addr: b.redis.Address})
	defer func() { _ = c.Close() }()
	entries, err := c.HGetAll(t.Context(), "{jobs}:jobs").Result()
	require.NoError(t, err)
	require.Len(t, entries, len(all))
	for id, entry := range entries { // as that version wrote them
		var fence, score int64
		_, err := fmt.Sscanf(entry, "%d %d", &fence, &score)
		require.NoError(t, err)
		const kind = "kubernetes/inference/inference"
		for _, write := range []error{
			c.HSet(t.Context(), "{jobs}:jobs", id, fmt.Sprintf("%d %d %s", fence, score, kind)).Err(),
			c.ZAdd(t.Context(), "{jobs}:w:"+kind, client.Z{Score: float64(score), Member: id}).Err(),
			c.SAdd(t.Context(), "{jobs}:types:kubernetes/inference", "inference").Err(),
			c.SAdd(t.Context(), "{jobs}:keys", "{jobs}:w:"+kind, "{jobs}:types:kubernetes/inference").Err(),
		} {
			require.NoError(t, write)
		}
	}
	require.NoError(t, c.Del(t.Context(), "{jobs}:lines:inference", "{jobs}:w:kubernetes/inference/inference/a",
		"{jobs}:w:kubernetes/inference/inference/b").Err())
	require.NoError(t, c.ScriptFlush(t.Context()).Err())

	store = b.open(t)
	require.Equal(t, map[string]int{"a": 2, "b": 2}, perNamespace(lease(t, store, turn(100, jobs.Share{Places: 4}))))
	require.Equal(t, map[string]int{"a": 1, "b": 1}, perNamespace(lease(t, store, turn(100))))
	require.Zero(t, c.Exists(t.Context(), "{jobs}:w:kubernetes/inference/inference").Val(), "nothing of the other version is left")
}

// linesEnd: lines in which nothing waits are forgotten.
func linesEnd(t *testing.T, b *backend) {
	if b.redis == nil {
		return // it is embedded
	}
	store := b.open(t, func(o *engine.Options) { o.TickInterval = time.Hour })
	for i := range 50 {
		submit(t, store, of(fmt.Sprint("n", i), 1)...)
	}
	require.Len(t, lease(t, store, turn(100)), 50)
	require.Empty(t, lease(t, store, turn(100)))
	c := client.NewClient(&client.Options{Addr: b.redis.Address})
	defer func() { _ = c.Close() }()
	require.Zero(t, c.SCard(t.Context(), "{jobs}:lines:inference").Val())
	require.LessOrEqual(t, c.SCard(t.Context(), "{jobs}:keys").Val(), int64(1))
}
