package rest_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

// memory is a Store whose errors and clock a test can set; it keeps everything in memory, and keeps the rules of jobs.Store.
type memory struct {
	mu      sync.Mutex
	jobs    map[string]*jobs.Job
	expires map[string]time.Time
	audits  []jobs.AuditEntry
	// fail is what every call returns, when it is set.
	fail error
	// checks are the answer of Check.
	checks map[string]error
}

const visibility = time.Minute

func newMemory() *memory {
	return &memory{jobs: map[string]*jobs.Job{}, expires: map[string]time.Time{}, checks: map[string]error{"database": nil, "redis": nil}}
}

func (m *memory) setFail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail = err
}

func (m *memory) Submit(_ context.Context, submitted []*jobs.Job) ([]int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return nil, m.fail
	}
	var positions []int
	for _, job := range submitted {
		job.ID = uuid.Must(uuid.NewV7()).String()
		job.Status, job.CreatedAt = jobs.Queued, time.Now()
		job.QueuedAt = job.CreatedAt
		kept := *job
		m.jobs[job.ID] = &kept
		positions = append(positions, 1+slices.IndexFunc(m.waiting(job.Queue, job.Executor), func(j *jobs.Job) bool { return j.ID == job.ID }))
	}
	return positions, nil
}

func (m *memory) waiting(queue string, executor jobs.Executor) []*jobs.Job {
	var waiting []*jobs.Job
	for _, job := range m.jobs {
		if job.Queue == queue && job.Executor == executor && job.Status == jobs.Queued {
			waiting = append(waiting, job)
		}
	}
	slices.SortFunc(waiting, func(a, b *jobs.Job) int {
		if a.Priority != b.Priority {
			return b.Priority - a.Priority
		}
		return a.CreatedAt.Compare(b.CreatedAt)
	})
	return waiting
}

func (m *memory) find(id string) (*jobs.Job, error) {
	if m.fail != nil {
		return nil, m.fail
	}
	job, ok := m.jobs[id]
	if !ok {
		return nil, jobs.ErrNotFound
	}
	return job, nil
}

func (m *memory) Get(_ context.Context, id string) (jobs.Job, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	job, err := m.find(id)
	if err != nil {
		return jobs.Job{}, err
	}
	return *job, nil
}

func (m *memory) List(_ context.Context, f jobs.Filter) ([]jobs.Job, int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return nil, 0, m.fail
	}
	var found []jobs.Job
	for _, job := range m.jobs {
		if f.Namespaces != nil && !slices.Contains(f.Namespaces, job.Namespace) || f.Status != "" && job.Status != f.Status ||
			f.Type != "" && job.Type != f.Type || f.Queue != "" && job.Queue != f.Queue || job.Priority < f.PriorityMin {
			continue
		}
		found = append(found, *job)
	}
	slices.SortFunc(found, func(a, b jobs.Job) int { return b.CreatedAt.Compare(a.CreatedAt) })
	from := min(f.Offset, len(found))
	return found[from:min(from+f.Limit, len(found))], len(found), nil
}

func (m *memory) Cancel(_ context.Context, id, _ string) (jobs.Job, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	job, err := m.find(id)
	if err != nil {
		return jobs.Job{}, err
	}
	if job.Status.Ended() {
		return *job, jobs.ErrEnded
	}
	job.Status, job.CompletedAt = jobs.Cancelled, time.Now()
	return *job, nil
}

func (m *memory) Requeue(_ context.Context, id, _ string) (jobs.Job, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	job, err := m.find(id)
	if err != nil {
		return jobs.Job{}, err
	}
	if job.Status != jobs.DeadLetter {
		return *job, jobs.ErrNotDeadLetter
	}
	job.Status, job.QueuedAt, job.CompletedAt, job.RetryCount = jobs.Queued, time.Now(), time.Time{}, 0
	return *job, nil
}

func (m *memory) Lease(ctx context.Context, r jobs.LeaseRequest) ([]jobs.Lease, error) {
	deadline := time.Now().Add(r.Wait)
	for {
		leases, err := m.lease(r)
		if err != nil || len(leases) > 0 || !time.Now().Before(deadline) {
			return leases, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (m *memory) lease(r jobs.LeaseRequest) ([]jobs.Lease, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return nil, m.fail
	}
	var leases []jobs.Lease
	for _, job := range m.waiting(r.Queue, r.Executor) {
		if len(leases) == r.Limit || r.Types != nil && !slices.Contains(r.Types, job.Type) {
			continue
		}
		job.Fence++
		job.Status, job.StartedAt, job.WorkerID = jobs.Running, time.Now(), r.Worker
		m.expires[job.ID] = time.Now().Add(visibility)
		leases = append(leases, jobs.Lease{Job: *job, Fence: job.Fence, ExpiresAt: m.expires[job.ID], Visibility: visibility})
	}
	return leases, nil
}

func (m *memory) held(id string, fence int64) (*jobs.Job, error) {
	job, err := m.find(id)
	if err == nil && (job.Fence != fence || job.Status != jobs.Running) {
		err = jobs.ErrLeaseLost
	}
	return job, err
}

func (m *memory) Heartbeat(_ context.Context, id string, fence int64) (time.Time, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if job, err := m.find(id); err == nil && job.Status == jobs.Cancelled && job.Fence == fence {
		return m.expires[id], true, nil
	}
	if _, err := m.held(id, fence); err != nil {
		return time.Time{}, false, err
	}
	m.expires[id] = time.Now().Add(visibility)
	return m.expires[id], false, nil
}

func (m *memory) Phase(_ context.Context, id string, fence int64, status jobs.Status) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	job, err := m.held(id, fence)
	if err == nil {
		job.Status = status
	}
	return err
}

func (m *memory) Complete(_ context.Context, id string, fence int64, result json.RawMessage) (jobs.Job, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if job, err := m.find(id); err == nil && job.Status == jobs.Succeeded && job.Fence == fence {
		return *job, nil
	}
	job, err := m.held(id, fence)
	if err != nil {
		return jobs.Job{}, err
	}
	job.Status, job.CompletedAt, job.Result = jobs.Succeeded, time.Now(), result
	return *job, nil
}

func (m *memory) Fail(_ context.Context, id string, fence int64, failure jobs.Failure) (jobs.Job, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	job, err := m.held(id, fence)
	if err != nil {
		return jobs.Job{}, err
	}
	job.Error = failure.Message
	switch {
	case !failure.Retryable:
		job.Status, job.CompletedAt = jobs.Failed, time.Now()
	case job.RetryCount >= job.Retry.MaxRetries:
		job.Status, job.CompletedAt = jobs.DeadLetter, time.Now()
	default:
		job.RetryCount++
		job.Status, job.NextRetryAt = jobs.Retrying, time.Now().Add(time.Hour)
	}
	return *job, nil
}

func (m *memory) Queues(context.Context) ([]jobs.QueueStats, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	stats := map[string]*jobs.QueueStats{}
	for _, job := range m.jobs {
		q := stats[job.Queue]
		if q == nil {
			q = &jobs.QueueStats{Name: job.Queue}
			stats[job.Queue] = q
		}
		pool := 0
		if job.Executor == jobs.Pool {
			pool = 1
		}
		switch job.Status {
		case jobs.Queued, jobs.Retrying:
			q.Depth++
			q.PoolDepth += pool
			if q.OldestQueuedAt.IsZero() || job.QueuedAt.Before(q.OldestQueuedAt) {
				q.OldestQueuedAt = job.QueuedAt
			}
		case jobs.Running, jobs.Scheduled:
			q.Processing++
			q.PoolProcessing += pool
		default:
			q.Processed1h++
		}
	}
	var all []jobs.QueueStats
	for _, q := range stats {
		all = append(all, *q)
	}
	return all, m.fail
}

func (m *memory) OpenIn(_ context.Context, namespace string) (int, error) {
	return m.open(func(job *jobs.Job) bool { return job.Namespace == namespace })
}

func (m *memory) OpenOf(_ context.Context, user string) (int, error) {
	return m.open(func(job *jobs.Job) bool { return job.Submitter == user })
}

func (m *memory) open(of func(*jobs.Job) bool) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	open := 0
	for _, job := range m.jobs {
		if of(job) && !job.Status.Ended() {
			open++
		}
	}
	return open, m.fail
}

func (m *memory) Metrics(context.Context) (jobs.Metrics, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	metrics := jobs.Metrics{Submitted: len(m.jobs)}
	for _, job := range m.jobs {
		switch job.Status {
		case jobs.Succeeded:
			metrics.Completed++
		case jobs.Failed, jobs.DeadLetter:
			metrics.Failed++
		}
	}
	return metrics, m.fail
}

func (m *memory) Audit(_ context.Context, entry jobs.AuditEntry) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.audits = append(m.audits, entry)
	return m.fail
}

func (m *memory) Check(context.Context) map[string]error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.checks
}
