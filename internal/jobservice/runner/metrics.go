package runner

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics of a Dispatcher.
type Metrics struct {
	held     prometheus.Gauge
	requests *prometheus.CounterVec
}

// NewMetrics registers them.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	metrics := promauto.With(registry)
	return &Metrics{
		held: metrics.NewGauge(prometheus.GaugeOpts{
			Name: "aijob_service_dispatched", Help: "Jobs that this replica has leased and looks after as AIJobs.",
		}),
		requests: metrics.NewCounterVec(prometheus.CounterOpts{
			Name: "aijob_service_aijob_requests_total",
			Help: "Requests to the API server that make, cancel, requeue or delete an AIJob, by verb and result (ok, refused, error).",
		}, []string{"verb", "result"}),
	}
}

func (m *Metrics) request(verb string, err error) {
	result := "ok"
	switch {
	case err == nil:
	case refused(err):
		result = "refused"
	default:
		result = "error"
	}
	m.requests.WithLabelValues(verb, result).Inc()
}
