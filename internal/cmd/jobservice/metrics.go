package jobservice

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// requestMetrics count what the REST interface answers.
type requestMetrics struct {
	durations *prometheus.HistogramVec
	limited   *prometheus.CounterVec
}

func newRequestMetrics(registry prometheus.Registerer) *requestMetrics {
	m := &requestMetrics{
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "aijob_service_request_duration_seconds",
			Help: "Time until a request to the job service was answered, by route and HTTP status.",
			// Waiting workers and logs that are followed take longer than all of them.
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5, 30},
		}, []string{"route", "status"}),
		limited: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "aijob_service_requests_limited_total",
			Help: "Requests that were refused because a client sent more than it may, by class (create, list, tasks, other).",
		}, []string{"class"}),
	}
	registry.MustRegister(m.durations, m.limited)
	return m
}

// Request implements http.RequestMetrics.
func (m *requestMetrics) Request(route string, status int, duration time.Duration) {
	m.durations.WithLabelValues(route, strconv.Itoa(status)).Observe(duration.Seconds())
}

// Limited implements http.RequestMetrics.
func (m *requestMetrics) Limited(class string) { m.limited.WithLabelValues(class).Inc() }
