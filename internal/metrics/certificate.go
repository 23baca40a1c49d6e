package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// NewCertificateExpiry returns a collector of the end of the webhooks' serving certificate. The function returns false
// while there is none.
func NewCertificateExpiry(notAfter func() (time.Time, bool)) prometheus.Collector {
	s := &scraped{}
	expiry := s.gauge("webhook_certificate_expiry_timestamp_seconds", "When the certificate ends that the webhooks are served with, in seconds since 1970.")
	s.collect = func(_ context.Context, send sender) error {
		if at, ok := notAfter(); ok {
			send(expiry, float64(at.Unix()))
		}
		return nil
	}
	return s
}
