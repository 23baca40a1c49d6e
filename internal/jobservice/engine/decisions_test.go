package engine

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/redisqueue"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/sqlstore"
)

func TestDelayGrowsToItsMost(t *testing.T) {
	o := &Options{RetryDelay: 10 * time.Second, MaxRetryDelay: 10 * time.Minute}
	for _, test := range []struct {
		n          int
		multiplier float64
		random     float64
		expected   time.Duration
	}{
		{0, 2, 0.5, 10 * time.Second},
		{1, 2, 0.5, 20 * time.Second},
		{3, 1.5, 0.5, 33750 * time.Millisecond},
		{0, 0, 0.5, 10 * time.Second},
		{1, 0, 0.5, 20 * time.Second}, // the default is 2
		{100000, 10, 0.5, 10 * time.Minute},
		{0, 2, 0, 9 * time.Second},
		{0, 2, 1, 11 * time.Second},
	} {
		require.InDelta(t, test.expected, delay(test.n, test.multiplier, o, test.random), float64(time.Millisecond))
	}
}

func TestSharesAreEven(t *testing.T) {
	for _, test := range []struct {
		held     int
		limits   []int
		expected []int
	}{
		{0, []int{1, 1}, nil},
		{1, []int{5, 5}, []int{1}},
		{6, []int{100, 100, 100}, []int{2, 2, 2}},
		{7, []int{1, 100, 2}, []int{1, 4, 2}},
		{5, []int{1, 1}, []int{1, 1}}, // more than they want cannot be
	} {
		var waiting []*waiter
		for _, limit := range test.limits {
			waiting = append(waiting, newWaiter(jobs.LeaseRequest{Limit: limit}))
		}
		var sizes []int
		seen := 0
		for _, some := range share(make([]redisqueue.Held, test.held), waiting) {
			sizes = append(sizes, len(some))
			seen += len(some)
		}
		require.Equal(t, test.expected, sizes)
		require.LessOrEqual(t, seen, test.held)
	}
}

func TestQuantilesAreOffByFivePercentAtMost(t *testing.T) {
	counts := map[int]int64{}
	for ms := 1; ms <= 1000; ms++ {
		counts[bucket(time.Duration(ms)*time.Millisecond)]++
	}
	for q, expected := range map[float64]time.Duration{0.5: 500 * time.Millisecond, 0.99: 990 * time.Millisecond, 0.01: 10 * time.Millisecond} {
		require.InEpsilon(t, expected, quantile(counts, q), 0.06)
	}
	require.Zero(t, quantile(nil, 0.5))
	require.Equal(t, 0, bucket(0))
	require.Less(t, bucket(math.MaxInt64), 500)
}

func TestAGrantIsForAJobThatNobodyHas(t *testing.T) {
	now := time.Now()
	for name, test := range map[string]struct {
		row              sqlstore.Row
		granted, changed bool
	}{
		"waits":                     {sqlstore.Row{Job: jobs.Job{Status: jobs.Queued, Fence: 4}}, true, true},
		"retries":                   {sqlstore.Row{Job: jobs.Job{Status: jobs.Retrying}}, true, true},
		"an AIJob that runs unheld": {sqlstore.Row{Job: jobs.Job{Status: jobs.Running, Executor: jobs.Kubernetes}}, true, true},
		"by the first try":          {sqlstore.Row{Job: jobs.Job{Status: jobs.Running, Fence: 5}, LeaseID: 7}, true, false},
		"another has it":            {sqlstore.Row{Job: jobs.Job{Status: jobs.Running, Fence: 4}, LeaseID: 8}, false, false},
		"another had it under this": {sqlstore.Row{Job: jobs.Job{Status: jobs.Retrying, Fence: 5}}, false, false},
		"has ended":                 {sqlstore.Row{Job: jobs.Job{Status: jobs.Cancelled}}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			row := test.row
			granted, changed := grant(&row, 5, 7, "w", now)
			require.Equal(t, []bool{test.granted, test.changed}, []bool{granted, changed})
			if changed {
				require.EqualValues(t, 5, row.Fence)
				require.True(t, row.Leased())
				require.Equal(t, "w", row.WorkerID)
			} else {
				require.Equal(t, test.row, row)
			}
		})
	}
}

func TestATransactionThatIsTriedAgainFindsItDone(t *testing.T) {
	now := moment()
	o := &Options{RetryDelay: time.Second, MaxRetryDelay: time.Minute}
	leased := func() *sqlstore.Row {
		return &sqlstore.Row{Job: jobs.Job{Status: jobs.Running, Executor: jobs.Pool, Fence: 3, Retry: jobs.Retry{MaxRetries: 1}}, LeaseID: 9}
	}
	for name, test := range map[string]struct {
		row   *sqlstore.Row
		apply transition
	}{
		"complete":     {leased(), complete(3, nil, now)},
		"fail":         {leased(), fail(3, jobs.Failure{Retryable: true}, now, o)},
		"fail finally": {leased(), fail(3, jobs.Failure{}, now, o)},
		"cancel":       {leased(), cancel(now)},
		"requeue":      {&sqlstore.Row{Job: jobs.Job{Status: jobs.DeadLetter}}, requeue(now)},
		"phase":        {leased(), phase(3, jobs.Scheduled, now)},
	} {
		t.Run(name, func(t *testing.T) {
			changed, _, err := test.apply(test.row, false)
			require.NoError(t, err)
			require.True(t, changed)
			before := *test.row
			changed, _, err = test.apply(test.row, true)
			require.NoError(t, err)
			require.False(t, changed)
			require.Equal(t, before, *test.row)
		})
	}
}
