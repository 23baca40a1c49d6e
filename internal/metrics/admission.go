package metrics

import (
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
			Name: "admission_preempted_total", Help: "Jobs that had to give their place to one of higher priority.",
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

// queueDepths tells at the time of a scrape how many jobs wait in each queue.
type queueDepths struct {
	depths func() map[string]int
	desc   *prometheus.Desc
}

// NewQueueDepths returns a collector of the number of jobs that wait in each AIJobQueue.
func NewQueueDepths(depths func() map[string]int) prometheus.Collector {
	return &queueDepths{depths, prometheus.NewDesc("aijob_queue_depth", "Jobs that wait in the queue.", []string{"queue"}, nil)}
}

// Describe implements prometheus.Collector.
func (c *queueDepths) Describe(out chan<- *prometheus.Desc) { out <- c.desc }

// Collect implements prometheus.Collector.
func (c *queueDepths) Collect(out chan<- prometheus.Metric) {
	for queue, depth := range c.depths() {
		out <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(depth), queue)
	}
}
