package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// listTimeout bounds the reading of objects for one scrape; the cache answers in far less.
const listTimeout = 5 * time.Second

// scraped is a collector whose figures are read at the time of a scrape, so that no series outlives its object.
type scraped struct {
	descs   []*prometheus.Desc
	collect func(context.Context, sender) error
}

// figure is a metric of a scraped collector.
type figure struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

// sender sends a value of a figure.
type sender func(of figure, value float64, labels ...string)

// known sends a value that may not be known.
func (send sender) known(of figure, labels []string) func(value float64, ok bool) {
	return func(value float64, ok bool) {
		if ok {
			send(of, value, labels...)
		}
	}
}

// falseConditions sends 1 for each condition that is False.
func (send sender) falseConditions(of figure, object client.Object, conditions []metav1.Condition) {
	for _, condition := range conditions {
		if condition.Status == metav1.ConditionFalse {
			send(of, 1, object.GetNamespace(), object.GetName(), condition.Type, condition.Reason)
		}
	}
}

func (s *scraped) gauge(name, help string, labels ...string) figure {
	return s.add(prometheus.GaugeValue, name, help, labels)
}

func (s *scraped) counter(name, help string, labels ...string) figure {
	return s.add(prometheus.CounterValue, name, help, labels)
}

func (s *scraped) add(kind prometheus.ValueType, name, help string, labels []string) figure {
	desc := prometheus.NewDesc(name, help, labels, nil)
	s.descs = append(s.descs, desc)
	return figure{desc, kind}
}

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
	err := s.collect(ctx, func(of figure, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(of.desc, of.kind, value, labels...)
	})
	if err != nil {
		out <- prometheus.NewInvalidMetric(s.descs[0], err)
	}
}
