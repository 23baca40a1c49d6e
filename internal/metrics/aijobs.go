package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
)

// AIJobs counts what happens to AIJobs.
type AIJobs struct {
	submitted prometheus.Counter
	completed *prometheus.CounterVec
	dispatch  prometheus.Observer
	execution *prometheus.HistogramVec
}

// NewAIJobs registers the metrics.
func NewAIJobs(registry prometheus.Registerer) *AIJobs {
	all := in(registry)
	m := &AIJobs{
		submitted: all.counter("aijob_submitted_total", "AIJobs taken up.").WithLabelValues(),
		completed: all.counter("aijob_completed_total", "AIJobs that ended, by the phase that they ended in.", "status"),
		dispatch: all.histogram("aijob_dispatch_latency_seconds", "Time from when an AIJob was queued until it had a place for all its pods.",
			[]float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400}).WithLabelValues(),
		execution: all.histogram("aijob_execution_duration_seconds", "Time from when all pods of the last try of an AIJob ran until the job ended, by job type.",
			[]float64{.1, .5, 1, 5, 15, 60, 300, 900, 3600, 14400, 86400}, "job_type"),
	}
	// An alert on growth misses the first of a series that begins with it.
	for _, phase := range []aiplatformv1alpha1.AIJobPhase{
		aiplatformv1alpha1.AIJobSucceeded, aiplatformv1alpha1.AIJobFailed, aiplatformv1alpha1.AIJobDeadLetter, aiplatformv1alpha1.AIJobCancelled,
	} {
		m.completed.WithLabelValues(string(phase))
	}
	return m
}

// Submitted counts a job that was taken up.
func (m *AIJobs) Submitted() { m.submitted.Inc() }

// Completed counts a job that ended in a phase.
func (m *AIJobs) Completed(phase string) { m.completed.WithLabelValues(phase).Inc() }

// Dispatched records how long a job waited for its place.
func (m *AIJobs) Dispatched(after time.Duration) { m.dispatch.Observe(max(after, 0).Seconds()) }

// Executed records how long the last try of a job took.
func (m *AIJobs) Executed(jobType string, took time.Duration) {
	m.execution.WithLabelValues(jobType).Observe(max(took, 0).Seconds())
}
