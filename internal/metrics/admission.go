package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Admission measures the cycles that decide upon jobs.
type Admission struct {
	cycles              prometheus.Histogram
	pending             prometheus.Gauge
	admitted, preempted prometheus.Counter
}

// NewAdmission registers the measures.
func NewAdmission(registry prometheus.Registerer) *Admission {
	m := &Admission{
		cycles: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "admission_cycle_duration_seconds",
			Help:    "Time that a cycle over the jobs that wait took.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1},
		}),
		pending: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "admission_pending_jobs", Help: "Jobs of all queues that waited in the last cycle and were not admitted.",
		}),
		admitted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "admission_admitted_total", Help: "Admissions of jobs.",
		}),
		preempted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "admission_preempted_total", Help: "Jobs that were preempted by one of higher priority.",
		}),
	}
	registry.MustRegister(m.cycles, m.pending, m.admitted, m.preempted)
	return m
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
	desc := prometheus.NewDesc("aijob_queue_depth", "Jobs that wait in the queue.", []string{"queue"}, nil)
	return &scraped{[]*prometheus.Desc{desc}, func(_ context.Context, send sender) error {
		for queue, depth := range depths() {
			send(desc, prometheus.GaugeValue, float64(depth), queue)
		}
		return nil
	}}
}
