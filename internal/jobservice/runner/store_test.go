package runner

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

// store keeps jobs of the executor Kubernetes in memory, with leases as a Store has them, and can be made to fail.
type store struct {
	jobs.Store

	mu         sync.Mutex
	jobs       map[string]*jobs.Job
	leased     map[string]time.Time
	visibility time.Duration
	down       bool
	calls      map[string]int
}

func newStore() *store {
	return &store{jobs: map[string]*jobs.Job{}, leased: map[string]time.Time{}, visibility: 3 * time.Second, calls: map[string]int{}}
}

// enter begins a call.
func (s *store) enter(call string) (leave func(), err error) {
	s.mu.Lock()
	s.calls[call]++
	if s.down {
		err = jobs.ErrUnavailable
	}
	return s.mu.Unlock, err
}

func (s *store) setDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

// expireLeases as if their holder had been silent for long.
func (s *store) expireLeases() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.leased)
}

func (s *store) Submit(_ context.Context, submitted []*jobs.Job) ([]int, error) {
	leave, err := s.enter("submit")
	defer leave()
	if err != nil {
		return nil, err
	}
	positions := make([]int, len(submitted))
	for i, job := range submitted {
		job.ID = string(uuid.NewUUID())
		job.Status, job.CreatedAt, job.QueuedAt = jobs.Queued, time.Now(), time.Now()
		kept := *job
		s.jobs[job.ID] = &kept
		positions[i] = len(s.jobs)
	}
	return positions, nil
}

func (s *store) Get(_ context.Context, id string) (jobs.Job, error) {
	leave, err := s.enter("get")
	defer leave()
	if err != nil {
		return jobs.Job{}, err
	}
	if job, ok := s.jobs[id]; ok {
		return *job, nil
	}
	return jobs.Job{}, jobs.ErrNotFound
}

func (s *store) Cancel(_ context.Context, id, by string) (jobs.Job, error) {
	leave, err := s.enter("cancel")
	defer leave()
	job, ok := s.jobs[id]
	switch {
	case err != nil:
		return jobs.Job{}, err
	case !ok:
		return jobs.Job{}, jobs.ErrNotFound
	case job.Status.Ended():
		return jobs.Job{}, jobs.ErrEnded
	}
	job.Status, job.CompletedAt, job.Error = jobs.Cancelled, time.Now(), "cancelled by "+by
	return *job, nil
}

func (s *store) Requeue(_ context.Context, id, _ string) (jobs.Job, error) {
	leave, err := s.enter("requeue")
	defer leave()
	if err != nil {
		return jobs.Job{}, err
	}
	job := s.jobs[id]
	if job.Status != jobs.DeadLetter {
		return jobs.Job{}, jobs.ErrNotDeadLetter
	}
	job.Status, job.QueuedAt = jobs.Queued, time.Now()
	delete(s.leased, id)
	return *job, nil
}

func (s *store) Lease(ctx context.Context, request jobs.LeaseRequest) ([]jobs.Lease, error) {
	until := time.Now().Add(request.Wait)
	for {
		leases, err := s.leaseNow(request)
		if err != nil || len(leases) > 0 || time.Now().After(until) || ctx.Err() != nil {
			return leases, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (s *store) leaseNow(request jobs.LeaseRequest) ([]jobs.Lease, error) {
	leave, err := s.enter("lease")
	defer leave()
	if err != nil {
		return nil, err
	}
	room := request.Limit
	for _, share := range request.Shares { // of one namespace: the engine's tests are of several
		held := 0
		for _, n := range share.Held {
			held += n
		}
		room = min(room, share.Places-held)
	}
	var leases []jobs.Lease
	for id, job := range s.jobs {
		if len(leases) >= room || job.Queue != request.Queue || job.Executor != request.Executor || job.Status.Ended() ||
			time.Now().Before(s.leased[id]) {
			continue
		}
		job.Fence++
		job.WorkerID = request.Worker
		s.leased[id] = time.Now().Add(s.visibility)
		leases = append(leases, jobs.Lease{Job: *job, Fence: job.Fence, ExpiresAt: s.leased[id], Visibility: s.visibility})
	}
	return leases, nil
}

// held returns the job of a lease that is valid, or the error of one that is not.
func (s *store) held(id string, fence int64) (*jobs.Job, error) {
	job, ok := s.jobs[id]
	switch {
	case !ok:
		return nil, jobs.ErrNotFound
	case job.Fence != fence || job.Status.Ended():
		return nil, jobs.ErrLeaseLost
	}
	return job, nil
}

func (s *store) Heartbeat(_ context.Context, id string, fence int64) (time.Time, bool, error) {
	leave, err := s.enter("heartbeat")
	defer leave()
	if err != nil {
		return time.Time{}, false, err
	}
	if job, ok := s.jobs[id]; ok && job.Status == jobs.Cancelled && job.Fence == fence {
		return time.Now(), true, nil
	}
	if _, err := s.held(id, fence); err != nil {
		return time.Time{}, false, err
	}
	s.leased[id] = time.Now().Add(s.visibility)
	return s.leased[id], false, nil
}

func (s *store) Phase(_ context.Context, id string, fence int64, status jobs.Status) error {
	leave, err := s.enter("phase")
	defer leave()
	if err != nil {
		return err
	}
	job, err := s.held(id, fence)
	if err == nil {
		job.Status = status
	}
	return err
}

func (s *store) Complete(_ context.Context, id string, fence int64, result json.RawMessage) (jobs.Job, error) {
	leave, err := s.enter("complete")
	defer leave()
	if err != nil {
		return jobs.Job{}, err
	}
	job, err := s.held(id, fence)
	if err != nil {
		return jobs.Job{}, err
	}
	job.Status, job.Result, job.CompletedAt = jobs.Succeeded, result, time.Now()
	return *job, nil
}

func (s *store) Fail(_ context.Context, id string, fence int64, failure jobs.Failure) (jobs.Job, error) {
	leave, err := s.enter("fail")
	defer leave()
	if err != nil {
		return jobs.Job{}, err
	}
	job, err := s.held(id, fence)
	if err != nil {
		return jobs.Job{}, err
	}
	job.Status, job.Error, job.CompletedAt = jobs.Failed, failure.Message, time.Now()
	if failure.Retryable {
		job.Status = jobs.DeadLetter
	}
	return *job, nil
}

func (s *store) Queues(context.Context) ([]jobs.QueueStats, error) {
	leave, err := s.enter("queues")
	defer leave()
	if err != nil {
		return nil, err
	}
	depth := map[string]int{}
	for _, job := range s.jobs {
		if !job.Status.Ended() {
			depth[job.Queue]++
		}
	}
	var all []jobs.QueueStats
	for name, n := range depth {
		all = append(all, jobs.QueueStats{Name: name, Depth: n})
	}
	return all, nil
}
