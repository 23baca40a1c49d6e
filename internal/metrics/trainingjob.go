// Package metrics holds every Prometheus collector of the product, one file per subsystem. docs/metrics.md lists them.
package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
)

// TrainingJobs counts what happens to training jobs.
type TrainingJobs struct {
	reconciliations, errors, created, completed, failed, scrapeFailures *prometheus.CounterVec
	durations, queueWait, timeToRunning                                 *prometheus.HistogramVec
	scrapes                                                             prometheus.Observer

	limit int
	mu    sync.Mutex
	known map[types.NamespacedName]bool // jobs that have series of their own
}

// NewTrainingJobs registers the counters. At most maxJobs jobs get series of their own under the label training_job;
// all others share the series whose label is empty, so that the number of series is bounded.
func NewTrainingJobs(registry prometheus.Registerer, maxJobs int) *TrainingJobs {
	// moments are for what is over soon, waits for the times that a job waits, from a second to a day.
	moments, waits := []float64{.001, .005, .025, .1, .5, 2.5}, []float64{1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600}
	all := in(registry)
	return &TrainingJobs{
		limit: maxJobs, known: map[types.NamespacedName]bool{},
		reconciliations: all.counter("trainingjob_reconciliation_total",
			"Reconciliations of training jobs, by result.", "namespace", "training_job", "result"),
		durations: all.histogram("trainingjob_reconciliation_duration_seconds",
			"Time that a reconciliation of a training job took.", moments, "namespace", "training_job"),
		errors: all.counter("trainingjob_reconciliation_errors_total",
			"Reconciliations of training jobs that ended with an error, by its type.", "namespace", "training_job", "error_type"),
		created:   all.counter("trainingjob_created_total", "Training jobs taken up.", "namespace"),
		completed: all.counter("trainingjob_completed_total", "Training jobs that ended, by result: success or failure.", "namespace", "result"),
		failed:    all.counter("trainingjob_failed_total", "Failed training jobs, by reason.", "namespace", "reason"),
		queueWait: all.histogram("trainingjob_queue_wait_seconds",
			"Time from the creation of a training job until it was admitted to its resources.", waits, "namespace"),
		timeToRunning: all.histogram("trainingjob_time_to_running_seconds",
			"Time from the creation of a training job until all its workers first ran.", waits, "namespace"),
		scrapes: all.histogram("trainingjob_scrape_duration_seconds",
			"Time that reading the figures of a running training job took.", moments).WithLabelValues(),
		scrapeFailures: all.counter("trainingjob_scrape_failures_total",
			"Failed attempts to read the figures of a running training job.", "namespace", "training_job"),
	}
}

// Reconciled counts one reconciliation of a job. The error type is empty when there was no error.
func (m *TrainingJobs) Reconciled(namespace, name string, took time.Duration, errorType string) {
	name = m.label(namespace, name)
	result := "success"
	if errorType != "" {
		result = "error"
		m.errors.WithLabelValues(namespace, name, errorType).Inc()
	}
	m.reconciliations.WithLabelValues(namespace, name, result).Inc()
	m.durations.WithLabelValues(namespace, name).Observe(took.Seconds())
}

// Created counts a job that was taken up.
func (m *TrainingJobs) Created(namespace string) { m.created.WithLabelValues(namespace).Inc() }

// Completed counts a job that succeeded.
func (m *TrainingJobs) Completed(namespace string) {
	m.completed.WithLabelValues(namespace, "success").Inc()
}

// Failed counts a job that failed.
func (m *TrainingJobs) Failed(namespace, reason string) {
	m.completed.WithLabelValues(namespace, "failure").Inc()
	m.failed.WithLabelValues(namespace, reason).Inc()
}

// Admitted tells how long a job waited for its resources.
func (m *TrainingJobs) Admitted(namespace string, waited time.Duration) {
	m.queueWait.WithLabelValues(namespace).Observe(max(waited, 0).Seconds())
}

// Running tells how long after its creation all workers of a job ran for the first time.
func (m *TrainingJobs) Running(namespace string, waited time.Duration) {
	m.timeToRunning.WithLabelValues(namespace).Observe(max(waited, 0).Seconds())
}

// Scraped counts one attempt to read the figures of a job.
func (m *TrainingJobs) Scraped(namespace, name string, took time.Duration, failed bool) {
	m.scrapes.Observe(took.Seconds())
	if failed {
		m.scrapeFailures.WithLabelValues(namespace, m.label(namespace, name)).Inc()
	}
}

// Forget drops the series of a job that no longer exists.
func (m *TrainingJobs) Forget(namespace, name string) {
	job := types.NamespacedName{Namespace: namespace, Name: name}
	m.mu.Lock()
	had := m.known[job]
	delete(m.known, job)
	m.mu.Unlock()
	if !had {
		return
	}
	series := prometheus.Labels{"namespace": namespace, "training_job": name}
	for _, metric := range []*prometheus.MetricVec{m.reconciliations.MetricVec, m.errors.MetricVec, m.durations.MetricVec, m.scrapeFailures.MetricVec} {
		metric.DeletePartialMatch(series)
	}
}

// label is the name for use as a label: itself when the job has series of its own, or there is room for them, else empty.
func (m *TrainingJobs) label(namespace, name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	job := types.NamespacedName{Namespace: namespace, Name: name}
	if !m.known[job] && len(m.known) >= m.limit {
		return ""
	}
	m.known[job] = true
	return name
}
