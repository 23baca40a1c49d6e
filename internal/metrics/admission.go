package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Admission measures the cycles that decide upon jobs.
type Admission struct {
	cycles              prometheus.Observer
	pending             prometheus.Gauge
	admitted, preempted prometheus.Counter
}

// NewAdmission registers the measures.
func NewAdmission(registry prometheus.Registerer) *Admission {
	all := in(registry)
	return &Admission{
		cycles: all.histogram("admission_cycle_duration_seconds", "Time that a cycle over the jobs that wait took.",
			[]float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1}).WithLabelValues(),
		pending:   all.gauge("admission_pending_jobs", "Jobs of all queues that waited in the last cycle and were not admitted.").WithLabelValues(),
		admitted:  all.counter("admission_admitted_total", "Admissions of jobs.").WithLabelValues(),
		preempted: all.counter("admission_preempted_total", "Jobs that were preempted by one of higher priority.").WithLabelValues(),
	}
}

// Cycle implements admission.Metrics.
func (m *Admission) Cycle(took time.Duration, pending, admitted, preempted int) {
	m.cycles.Observe(took.Seconds())
	m.pending.Set(float64(pending - admitted))
	m.admitted.Add(float64(admitted))
	m.preempted.Add(float64(preempted))
}

// NewQueueDepths returns a collector of the number of jobs that wait in each AIJobQueue.
func NewQueueDepths(depths func() map[string]int) prometheus.Collector {
	s := &scraped{}
	waiting := s.gauge("aijob_queue_depth", "Jobs that wait in the queue.", "queue")
	s.collect = func(_ context.Context, send sender) error {
		for queue, depth := range depths() {
			send(waiting, float64(depth), queue)
		}
		return nil
	}
	return s
}
