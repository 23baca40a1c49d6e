package engine

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/sqlstore"
)

func waits(status jobs.Status) bool { return status == jobs.Queued || status == jobs.Retrying }

// OpenIn returns how many jobs of a namespace have not ended.
func (s *Store) OpenIn(ctx context.Context, namespace string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.OperationTimeout)
	defer cancel()
	return s.db.OpenIn(ctx, namespace)
}

// OpenOf returns how many jobs that a user submitted have not ended.
func (s *Store) OpenOf(ctx context.Context, user string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.OperationTimeout)
	defer cancel()
	return s.db.OpenOf(ctx, user)
}

// Queues returns the figures of all queues that have or had jobs.
func (s *Store) Queues(ctx context.Context) ([]jobs.QueueStats, error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.OperationTimeout)
	defer cancel()
	counts, err := s.db.Counts(ctx)
	if err != nil {
		return nil, err
	}
	queues := map[string]*jobs.QueueStats{}
	for _, c := range counts {
		q := queues[c.Queue]
		if q == nil {
			q = &jobs.QueueStats{Name: c.Queue}
			queues[c.Queue] = q
		}
		if c.Status.Ended() {
			continue
		}
		if waits(c.Status) {
			q.Depth += c.N
		} else {
			q.Processing += c.N
		}
		if c.Executor == jobs.Pool && waits(c.Status) {
			q.PoolDepth += c.N
		} else if c.Executor == jobs.Pool {
			q.PoolProcessing += c.N
		}
	}
	names := slices.Sorted(maps.Keys(queues))
	if err := s.addTimes(ctx, queues, names); err != nil {
		return nil, err
	}
	all := make([]jobs.QueueStats, 0, len(names))
	for _, name := range names {
		all = append(all, *queues[name])
	}
	return all, nil
}

func (s *Store) addTimes(ctx context.Context, queues map[string]*jobs.QueueStats, names []string) error {
	oldest, err := s.db.Oldest(ctx, names)
	if err != nil {
		return err
	}
	for name, at := range oldest {
		queues[name].OldestQueuedAt = at
	}
	hour, err := s.db.Figures(ctx, 60, time.Now().Add(-time.Hour))
	if err != nil {
		return err
	}
	type sum struct{ n, total int64 }
	dispatched, ended := map[string]sum{}, map[string]sum{}
	for _, f := range hour {
		switch f.Kind {
		case wasDispatched:
			dispatched[f.Queue] = sum{dispatched[f.Queue].n + f.N, dispatched[f.Queue].total + f.Total}
		case wasSucceeded, wasFailed:
			ended[f.Queue] = sum{ended[f.Queue].n + f.N, ended[f.Queue].total + f.Total}
		}
	}
	average := func(s sum) time.Duration { return time.Duration(s.total/max(1, s.n)) * time.Microsecond }
	for name, q := range queues {
		q.Processed1h = int(ended[name].n)
		q.AverageWait, q.AverageExecution = average(dispatched[name]), average(ended[name])
	}
	return nil
}

// Metrics returns the figures of the last 24 hours, by whole hours, at most a few seconds old.
func (s *Store) Metrics(ctx context.Context) (jobs.Metrics, error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.OperationTimeout)
	defer cancel()
	s.metrics.Lock()
	defer s.metrics.Unlock()
	now := time.Now()
	if now.Sub(s.metrics.at) < time.Second {
		return s.metrics.value, nil
	}
	day, err := s.db.Figures(ctx, 3600, now.Add(-24*time.Hour))
	if err != nil {
		return jobs.Metrics{}, err
	}
	minutes, err := s.db.Figures(ctx, 60, now.Add(-2*time.Minute))
	if err != nil {
		return jobs.Metrics{}, err
	}
	s.metrics.value, s.metrics.at = sumUp(day, minutes, now), now
	return s.metrics.value, nil
}

func sumUp(day, minutes []sqlstore.Figure, now time.Time) jobs.Metrics {
	var m jobs.Metrics
	dispatch, execution := map[int]int64{}, map[int]int64{}
	for _, f := range day {
		switch f.Kind {
		case wasSubmitted:
			m.Submitted += int(f.N)
		case wasDispatched:
			dispatch[f.Bucket] += f.N
		case wasSucceeded:
			m.Completed += int(f.N)
			execution[f.Bucket] += f.N
		case wasFailed:
			m.Failed += int(f.N)
			execution[f.Bucket] += f.N
		}
	}
	m.DispatchP50, m.DispatchP99 = quantile(dispatch, 0.5), quantile(dispatch, 0.99)
	m.ExecutionP50, m.ExecutionP99 = quantile(execution, 0.5), quantile(execution, 0.99)
	// The last minute is this one and the part of the one before that is not over yet.
	this := now.Unix() - now.Unix()%60
	before := 1 - float64(now.Unix()-this)/60
	for _, f := range minutes {
		part := 1.0
		if f.Start < this-60 {
			continue
		} else if f.Start < this {
			part = before
		}
		switch f.Kind {
		case wasSubmitted:
			m.SubmittedPerSecond += part * float64(f.N) / 60
		case wasSucceeded, wasFailed:
			m.PerSecond += part * float64(f.N) / 60
		}
	}
	return m
}

const pruneLimit = 1000

// tidy sums up counts, and deletes what is too old.
func (s *Store) tidy(ctx context.Context) bool {
	if err := s.db.Tidy(ctx); err != nil {
		return false
	}
	more := false
	now := time.Now()
	if keep := s.options.Retention; keep > 0 {
		n, err := s.db.Prune(ctx, now.Add(-keep), pruneLimit)
		more = err == nil && n == pruneLimit
	}
	if keep := s.options.AuditRetention; keep > 0 {
		n, err := s.db.PruneAudit(ctx, now.Add(-keep), pruneLimit)
		more = more || err == nil && n == pruneLimit
	}
	return more
}

const (
	// monthsInterval: a month that may not be dropped yet is read again each time.
	monthsInterval = 10 * time.Minute
	// monthsTimeout: the database may have to look at each row once. No caller waits for that.
	monthsTimeout = time.Hour
)

// keepMonths has the database keep its history by month.
func (s *Store) keepMonths(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, monthsTimeout)
	defer cancel()
	done, err := s.db.KeepMonths(ctx, time.Now(), s.options.Retention, s.options.AuditRetention)
	if len(done.Created) > 0 {
		s.options.Logger.Info("Created partitions of the history", "tables", done.Created)
	}
	if len(done.Dropped) > 0 {
		s.options.Logger.Info("Dropped partitions of the history that are older than the retention", "tables", done.Dropped)
	}
	if err != nil && ctx.Err() == nil {
		s.options.Logger.Info("Cannot keep the partitions of the history yet", "reason", err.Error())
	}
}
