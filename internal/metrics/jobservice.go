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
	submitted, completed *prometheus.CounterVec
	dispatch             prometheus.Histogram
	execution            *prometheus.HistogramVec
	requests             *prometheus.HistogramVec
	limited              *prometheus.CounterVec

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
	m := &JobService{
		registry: registry,
		submitted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "aijob_submitted_total", Help: "Jobs that were accepted.",
		}, []string{"job_type"}),
		completed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "aijob_completed_total", Help: "Jobs that ended, by status: succeeded, failed, dead_letter or cancelled.",
		}, []string{"status"}),
		dispatch: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "aijob_dispatch_latency_seconds", Help: "Time from when a job was queued to when a worker got it.",
			Buckets: []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 5, 30, 120, 600, 3600},
		}),
		execution: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "aijob_execution_duration_seconds", Help: "Time from when a job was started to when it ended.",
			Buckets: []float64{.01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400},
		}, []string{"job_type"}),
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "aijob_service_request_duration_seconds", Help: "Time until a request to the job service was answered, by route and HTTP status.",
			Buckets: []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .25, .5, 1, 2.5, 10, 30},
		}, []string{"route", "status"}),
		limited: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "aijob_service_requests_limited_total", Help: "Requests that were refused because a client sent more than it may, by class (create, list, tasks, other).",
		}, []string{"class"}),
	}
	registry.MustRegister(m.submitted, m.completed, m.dispatch, m.execution, m.requests, m.limited)
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
	m.registry.MustRegister(&queueDepth{store: store, desc: prometheus.NewDesc("aijob_queue_depth", "Jobs that wait.", []string{"queue"}, nil)})
	return &countingStore{Store: store, metrics: m}
}

// queueDepth asks for the depth at the time of a scrape.
type queueDepth struct {
	store jobs.Store
	desc  *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *queueDepth) Describe(out chan<- *prometheus.Desc) { out <- c.desc }

// Collect implements prometheus.Collector.
func (c *queueDepth) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	queues, err := c.store.Queues(ctx)
	if err != nil {
		out <- prometheus.NewInvalidMetric(c.desc, err)
		return
	}
	for i := range queues {
		out <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(queues[i].Depth), queues[i].Name)
	}
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
