package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
)

// SpotInstances counts what happens to the instances of SpotInstanceVMs.
type SpotInstances struct {
	ready      *prometheus.HistogramVec
	refused    *prometheus.CounterVec
	preempted  *prometheus.CounterVec
	orphaned   *prometheus.CounterVec
	listed     *prometheus.CounterVec
	listFailed *prometheus.CounterVec
	listTook   prometheus.Histogram
}

// NewSpotInstances registers the metrics.
func NewSpotInstances(registry prometheus.Registerer) *SpotInstances {
	m := &SpotInstances{
		ready: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "spotinstancevm_ready_seconds", Help: "Time from the creation of an instance until it was a ready node.",
			Buckets: []float64{15, 30, 60, 90, 120, 180, 240, 300, 420, 600, 900, 1800},
		}, []string{"zone", "provisioning_model"}),
		refused: counter("spotinstancevm_refusals_total",
			"Instances that the provider refused, by the class of its error: Stockout, Quota and others.", "zone", "machine_type", "class"),
		preempted: counter("spotinstancevm_preemptions_total",
			"Instances that their provider took back, or that another than the operator ended.", "zone", "machine_type"),
		orphaned: counter("spotinstancevm_orphans_total",
			"Instances that were deleted because their SpotInstanceVM no longer exists.", "zone"),
		listed:     counter("spotinstancevm_lists_total", "Lists of the instances of a zone.", "zone"),
		listFailed: counter("spotinstancevm_list_failures_total", "Lists of the instances of a zone that failed.", "zone"),
		listTook: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "spotinstancevm_list_seconds", Help: "Time that a list of the instances of a zone took.",
			Buckets: prometheus.ExponentialBuckets(0.01, 3, 9),
		}),
	}
	registry.MustRegister(m.ready, m.refused, m.preempted, m.orphaned, m.listed, m.listFailed, m.listTook)
	return m
}

// Ready notes how long an instance took to become a ready node.
func (m *SpotInstances) Ready(zone, model string, took time.Duration) {
	m.ready.WithLabelValues(zone, model).Observe(took.Seconds())
}

// Refused counts an instance that the provider refused.
func (m *SpotInstances) Refused(zone, machineType, class string) {
	m.refused.WithLabelValues(zone, machineType, class).Inc()
}

// Preempted counts an instance that was taken back.
func (m *SpotInstances) Preempted(zone, machineType string) {
	m.preempted.WithLabelValues(zone, machineType).Inc()
}

// Orphaned counts an instance without an owner that was deleted.
func (m *SpotInstances) Orphaned(zone string) { m.orphaned.WithLabelValues(zone).Inc() }

// Listed counts a list of a zone.
func (m *SpotInstances) Listed(zone string, took time.Duration, err error) {
	m.listed.WithLabelValues(zone).Inc()
	m.listTook.Observe(took.Seconds())
	if err != nil {
		m.listFailed.WithLabelValues(zone).Inc()
	}
}

// NewSpotInstanceStatus returns a collector of the instances that are in the status of SpotInstanceVMs, read from the
// cache.
func NewSpotInstanceStatus(vms client.Reader) prometheus.Collector {
	instances := prometheus.NewDesc("spotinstancevm_instances",
		"Instances that exist or were asked for, by their state.", []string{"zone", "state", "provisioning_model"}, nil)
	return &scraped{[]*prometheus.Desc{instances}, func(ctx context.Context, send sender) error {
		var list spotv1alpha1.SpotInstanceVMList
		if err := vms.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
			return err
		}
		type group struct{ zone, state, model string }
		counts := map[group]int{}
		for i := range list.Items {
			for j := range list.Items[i].Status.ProvisionedInstances {
				entry := &list.Items[i].Status.ProvisionedInstances[j]
				counts[group{entry.Zone, string(entry.State), string(entry.ProvisioningModel)}]++
			}
		}
		for of, count := range counts {
			send(instances, prometheus.GaugeValue, float64(count), of.zone, of.state, of.model)
		}
		return nil
	}}
}
