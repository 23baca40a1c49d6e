package engine

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/sqlstore"
)

// What is counted, and how long it took: since when the job waited for a dispatch, how long it ran for an end.
const (
	wasSubmitted  = "submitted"
	wasSucceeded  = "succeeded"
	wasFailed     = "failed" // or went to dead_letter
	wasCancelled  = "cancelled"
	wasDispatched = "dispatched"
)

// figures gathers what happened, by minute and by hour. They reach the database each second; a crash loses the last second of them.
type figures struct {
	observer Observer
	mutex    sync.Mutex
	sums     map[sqlstore.Figure]sqlstore.Figure // by the figure without its sums
}

func newFigures(observer Observer) *figures {
	return &figures{observer: observer, sums: map[sqlstore.Figure]sqlstore.Figure{}}
}

func (f *figures) add(at time.Time, queue, kind string, took time.Duration, n int64) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	for _, width := range []int64{60, 3600} {
		start := at.Unix()
		key := sqlstore.Figure{Width: width, Start: start - start%width, Queue: queue, Kind: kind, Bucket: bucket(took)}
		sum := f.sums[key]
		sum.N += n
		sum.Total += took.Microseconds() * n
		f.sums[key] = sum
	}
}

func (f *figures) submitted(rows []*sqlstore.Row) {
	queues := map[string]int64{}
	for _, row := range rows {
		queues[row.Queue]++
		f.observer.Submitted(&row.Job)
	}
	for queue, n := range queues {
		f.add(time.Now(), queue, wasSubmitted, 0, n)
	}
}

func (f *figures) dispatched(job *jobs.Job, waited time.Duration) {
	f.add(time.Now(), job.Queue, wasDispatched, waited, 1)
	f.observer.Dispatched(waited)
}

// changed counts a job that has just ended.
func (f *figures) changed(row *sqlstore.Row) {
	kind := map[jobs.Status]string{
		jobs.Succeeded: wasSucceeded, jobs.Failed: wasFailed, jobs.DeadLetter: wasFailed, jobs.Cancelled: wasCancelled,
	}[row.Status]
	if kind == "" {
		return
	}
	var ran time.Duration
	if !row.StartedAt.IsZero() {
		ran = max(0, row.CompletedAt.Sub(row.StartedAt))
	}
	f.add(row.CompletedAt, row.Queue, kind, ran, 1)
	f.observer.Ended(&row.Job)
}

// The buckets of durations grow by a tenth each, so that a quantile is off by 5 % at most.
const growth = 1.1

func bucket(d time.Duration) int {
	return int(math.Ceil(math.Log(float64(max(1, d.Microseconds()))) / math.Log(growth)))
}

// middle of a bucket.
func middle(bucket int) time.Duration {
	return time.Duration(math.Pow(growth, float64(bucket)-0.5) * float64(time.Microsecond))
}

// quantile of durations that are counted by bucket.
func quantile(counts map[int]int64, q float64) time.Duration {
	var n int64
	for _, count := range counts {
		n += count
	}
	left := int64(math.Ceil(q * float64(n)))
	for _, b := range slices.Sorted(maps.Keys(counts)) {
		if left -= counts[b]; left <= 0 {
			return middle(b)
		}
	}
	return 0
}

func (s *Store) flushFigures(ctx context.Context) bool {
	s.figures.mutex.Lock()
	sums := s.figures.sums
	s.figures.sums = map[sqlstore.Figure]sqlstore.Figure{}
	s.figures.mutex.Unlock()
	if len(sums) == 0 {
		return false
	}
	all := make([]sqlstore.Figure, 0, len(sums))
	for key, sum := range sums {
		key.N, key.Total = sum.N, sum.Total
		all = append(all, key)
	}
	// So that replicas that add to the same figures lock them in the same order.
	slices.SortFunc(all, func(a, b sqlstore.Figure) int {
		return cmp.Or(cmp.Compare(a.Width, b.Width), cmp.Compare(a.Start, b.Start), cmp.Compare(a.Queue, b.Queue),
			cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Bucket, b.Bucket))
	})
	if err := s.db.AddFigures(ctx, all); err != nil {
		// They are added to what comes. When the answer alone was lost they count twice, which matters less than that they are missing.
		s.figures.mutex.Lock()
		defer s.figures.mutex.Unlock()
		for key, sum := range sums {
			now := s.figures.sums[key]
			s.figures.sums[key] = sqlstore.Figure{N: now.N + sum.N, Total: now.Total + sum.Total}
		}
	}
	return false
}
