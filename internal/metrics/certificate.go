package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// certificateExpiry tells when the certificate ends that the webhooks are served with.
type certificateExpiry struct {
	desc     *prometheus.Desc
	notAfter func() (time.Time, bool)
}

// NewCertificateExpiry returns a collector of the end of the webhooks' serving certificate. The function returns false
// while there is none.
func NewCertificateExpiry(notAfter func() (time.Time, bool)) prometheus.Collector {
	return certificateExpiry{
		desc: prometheus.NewDesc("webhook_certificate_expiry_timestamp_seconds",
			"When the certificate ends that the webhooks are served with, in seconds since 1970.", nil, nil),
		notAfter: notAfter,
	}
}

// Describe implements prometheus.Collector.
func (c certificateExpiry) Describe(out chan<- *prometheus.Desc) { out <- c.desc }

// Collect implements prometheus.Collector.
func (c certificateExpiry) Collect(out chan<- prometheus.Metric) {
	if at, ok := c.notAfter(); ok {
		out <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(at.Unix()))
	}
}
