package metrics

import (
	"context"
	"encoding/json"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

// JobService are the metrics of the job service.
type JobService struct {
	submitted, completed, limited *prometheus.CounterVec
	dispatch                      prometheus.Observer
	execution, requests           *prometheus.HistogramVec

	registry prometheus.Registerer
	// observers by route and status, because to find one by its labels takes longer than to find it here.
	observers sync.Map
}

type requestKey struct {
	route  string
	status int
}

// NewJobService registers the metrics of the job service.
func NewJobService(registry prometheus.Registerer) *JobService {
	all := in(registry)
	m := &JobService{
		registry:  registry,
		submitted: all.counter("aijob_submitted_total", "Jobs that were accepted.", "job_type"),
		completed: all.counter("aijob_completed_total", "Jobs that ended, by status: succeeded, failed, dead_letter or cancelled.", "status"),
		dispatch: all.histogram("aijob_dispatch_latency_seconds", "Time from when a job was queued to when a worker got it.",
			[]float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 5, 30, 120, 600, 3600}).WithLabelValues(),
		execution: all.histogram("aijob_execution_duration_seconds", "Time from when a job was started to when it ended.",
			[]float64{.01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400}, "job_type"),
		requests: all.histogram("aijob_service_request_duration_seconds", "Time until a request to the job service was answered, by route and HTTP status.",
			[]float64{.0005, .001, .002, .005, .01, .02, .05, .1, .25, .5, 1, 2.5, 10, 30}, "route", "status"),
		limited: all.counter("aijob_service_requests_limited_total",
			"Requests that were refused because a client sent more than it may, by class (create, list, tasks, other).", "class"),
	}
	// Rates need a first value from which to count.
	for _, status := range []jobs.Status{jobs.Succeeded, jobs.Failed, jobs.DeadLetter, jobs.Cancelled} {
		m.completed.WithLabelValues(string(status))
	}
	return m
}

// Request counts a request that was answered.
func (m *JobService) Request(route string, status int, duration time.Duration) {
	key := requestKey{route, status}
	observer, ok := m.observers.Load(key)
	if !ok {
		observer, _ = m.observers.LoadOrStore(key, m.requests.WithLabelValues(route, strconv.Itoa(status)))
	}
	observer.(prometheus.Observer).Observe(duration.Seconds())
}

// Limited counts a request that a rate limit refused.
func (m *JobService) Limited(class string) { m.limited.WithLabelValues(class).Inc() }

// Store returns a store that counts what is done with another, which everything in the service must then use. It also
// registers the depth of the store's queues.
func (m *JobService) Store(store jobs.Store) jobs.Store {
	s := &scraped{}
	waiting := s.gauge("aijob_queue_depth", "Jobs that wait.", "queue")
	s.collect = func(ctx context.Context, send sender) error {
		queues, err := store.Queues(ctx)
		for i := range queues {
			send(waiting, float64(queues[i].Depth), queues[i].Name)
		}
		return err
	}
	m.registry.MustRegister(s)
	return &countingStore{Store: store, metrics: m}
}

// countingStore counts what was acknowledged.
type countingStore struct {
	jobs.Store
	metrics *JobService
}

// Submit implements jobs.Store.
func (s *countingStore) Submit(ctx context.Context, submitted []*jobs.Job) ([]int, error) {
	positions, err := s.Store.Submit(ctx, submitted)
	if err == nil {
		for _, job := range submitted {
			s.metrics.submitted.WithLabelValues(job.Type).Inc()
		}
	}
	return positions, err
}

// Lease implements jobs.Store.
func (s *countingStore) Lease(ctx context.Context, request jobs.LeaseRequest) ([]jobs.Lease, error) {
	leases, err := s.Store.Lease(ctx, request)
	now := time.Now()
	for i := range leases {
		if at := leases[i].Job.QueuedAt; !at.IsZero() {
			s.metrics.dispatch.Observe(max(0, now.Sub(at).Seconds()))
		}
	}
	return leases, err
}

// Cancel implements jobs.Store.
func (s *countingStore) Cancel(ctx context.Context, id, by string) (jobs.Job, error) {
	job, err := s.Store.Cancel(ctx, id, by)
	if err == nil {
		s.metrics.completed.WithLabelValues(string(jobs.Cancelled)).Inc()
	}
	return job, err
}

// Complete implements jobs.Store.
func (s *countingStore) Complete(ctx context.Context, id string, fence int64, result json.RawMessage) (jobs.Job, error) {
	asked := time.Now()
	job, err := s.Store.Complete(ctx, id, fence, result)
	return job, s.ended(job, asked, err)
}

// Fail implements jobs.Store.
func (s *countingStore) Fail(ctx context.Context, id string, fence int64, failure jobs.Failure) (jobs.Job, error) {
	asked := time.Now()
	job, err := s.Store.Fail(ctx, id, fence, failure)
	return job, s.ended(job, asked, err)
}

// ended counts a job that ended just now. A worker that says a second time that it has completed a job is answered the same, with a
// time of completion that is past.
func (s *countingStore) ended(job jobs.Job, asked time.Time, err error) error {
	const precision = time.Millisecond
	if err != nil || !job.Status.Ended() || job.CompletedAt.Before(asked.Add(-precision)) {
		return err
	}
	s.metrics.completed.WithLabelValues(string(job.Status)).Inc()
	if !job.StartedAt.IsZero() {
		s.metrics.execution.WithLabelValues(job.Type).Observe(max(0, job.CompletedAt.Sub(job.StartedAt).Seconds()))
	}
	return err
}
