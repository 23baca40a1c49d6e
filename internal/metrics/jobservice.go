package metrics

import (
	"context"
	"strconv"
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
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Observe(duration.Seconds())
}

// Limited counts a request that a rate limit refused.
func (m *JobService) Limited(class string) { m.limited.WithLabelValues(class).Inc() }

// Submitted counts a job that was accepted.
func (m *JobService) Submitted(job *jobs.Job) { m.submitted.WithLabelValues(job.Type).Inc() }

// Dispatched counts a job that a worker got.
func (m *JobService) Dispatched(waited time.Duration) { m.dispatch.Observe(waited.Seconds()) }

// Ended counts a job that ended.
func (m *JobService) Ended(job *jobs.Job) {
	m.completed.WithLabelValues(string(job.Status)).Inc()
	if job.Status != jobs.Cancelled && !job.StartedAt.IsZero() {
		m.execution.WithLabelValues(job.Type).Observe(max(0, job.CompletedAt.Sub(job.StartedAt).Seconds()))
	}
}

// Queues registers the depth of a store's queues.
func (m *JobService) Queues(store jobs.Store) {
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
}
