package metrics

import (
	"context"
	"crypto/tls"

	"github.com/prometheus/client_golang/prometheus"
)

// Serving returns the certificate in use, as tls.Config asks for it. It returns an error while there is none.
type Serving func(*tls.ClientHelloInfo) (*tls.Certificate, error)

// NewCertificateExpiry returns a collector of the end of the webhooks' serving certificate.
func NewCertificateExpiry(serving Serving) prometheus.Collector {
	s := &scraped{}
	s.collect = expiry(serving,
		s.gauge("webhook_certificate_expiry_timestamp_seconds", "When the certificate ends that the webhooks are served with, in seconds since 1970."))
	return s
}

// NewJobServiceCertificateExpiry returns a collector of the end of the certificate that a job service serves.
func NewJobServiceCertificateExpiry(serving Serving) prometheus.Collector {
	s := &scraped{}
	s.collect = expiry(serving, s.gauge("aijob_service_certificate_expiry_timestamp_seconds",
		"When the certificate ends that the job service is served with, in seconds since 1970."))
	return s
}

func expiry(serving Serving, of figure) func(context.Context, sender) error {
	return func(_ context.Context, send sender) error {
		if pair, err := serving(nil); err == nil && pair.Leaf != nil {
			send(of, float64(pair.Leaf.NotAfter.Unix()))
		}
		return nil
	}
}
