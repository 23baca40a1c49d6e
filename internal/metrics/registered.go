package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// registered makes metrics that are registered at once. One without labels is the only member of its family:
// WithLabelValues() is that, and has it shown with 0 from the beginning.
type registered struct{ promauto.Factory }

func in(registry prometheus.Registerer) registered { return registered{promauto.With(registry)} }

func (r registered) counter(name, help string, labels ...string) *prometheus.CounterVec {
	return r.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func (r registered) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return r.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

func (r registered) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return r.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}
