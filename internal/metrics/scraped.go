package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// listTimeout bounds the reading of objects for one scrape; the cache answers in far less.
const listTimeout = 5 * time.Second

// scraped is a collector whose figures are read at the time of a scrape, so that no series outlives its object.
type scraped struct {
	descs   []*prometheus.Desc
	collect func(context.Context, sender) error
}

// sender sends the value of a figure.
type sender func(desc *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string)

// Describe implements prometheus.Collector.
func (s *scraped) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range s.descs {
		out <- desc
	}
}

// Collect implements prometheus.Collector.
func (s *scraped) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	err := s.collect(ctx, func(desc *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, kind, value, labels...)
	})
	if err != nil {
		out <- prometheus.NewInvalidMetric(s.descs[0], err)
	}
}
