package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
)

// SpotInstances counts what happens to the instances of SpotInstanceVMs.
type SpotInstances struct {
	ready                                            *prometheus.HistogramVec
	refused, preempted, orphaned, listed, listFailed *prometheus.CounterVec
	listTook                                         prometheus.Observer
}

// NewSpotInstances registers the metrics.
func NewSpotInstances(registry prometheus.Registerer) *SpotInstances {
	all := in(registry)
	return &SpotInstances{
		ready: all.histogram("spotinstancevm_ready_seconds", "Time from the creation of an instance until it was a ready node.",
			[]float64{15, 30, 60, 90, 120, 180, 240, 300, 420, 600, 900, 1800}, "zone", "provisioning_model"),
		refused: all.counter("spotinstancevm_refusals_total",
			"Instances that the provider refused, by the class of its error: Stockout, Quota and others.", "zone", "machine_type", "class"),
		preempted: all.counter("spotinstancevm_preemptions_total",
			"Instances that their provider took back, or that another than the operator ended.", "zone", "machine_type"),
		orphaned:   all.counter("spotinstancevm_orphans_total", "Instances that were deleted because their SpotInstanceVM no longer exists.", "zone"),
		listed:     all.counter("spotinstancevm_lists_total", "Lists of the instances of a zone.", "zone"),
		listFailed: all.counter("spotinstancevm_list_failures_total", "Lists of the instances of a zone that failed.", "zone"),
		listTook: all.histogram("spotinstancevm_list_seconds", "Time that a list of the instances of a zone took.",
			prometheus.ExponentialBuckets(0.01, 3, 9)).WithLabelValues(),
	}
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

// NewSpotInstanceStatus returns a collector of what the status of SpotInstanceVMs says of instances, of zones and of conditions that are
// False, read from the cache. The number of series is bounded by that of the objects: each has at most 32 zones, and at most maxObjects have
// figures of conditions.
func NewSpotInstanceStatus(vms client.Reader, maxObjects int) prometheus.Collector {
	s := &scraped{}
	labels := []string{"namespace", "spot_instance_vm", "zone", "machine_type"}
	instances := s.gauge("spotinstancevm_instances", "Instances that exist or were asked for, by their state.", "zone", "state", "provisioning_model")
	preemptions := s.counter("spot_zone_preemptions_total", "Spot instances that the provider took back.", labels...)
	hours := s.counter("spot_zone_instance_hours_total", "Hours that spot instances ran until they were taken back or deleted.", labels...)
	rate := s.gauge("spot_zone_preemptions_per_hour", "Preemptions to be expected for each hour of a spot instance.", labels...)
	price := s.gauge("spot_zone_price_per_hour", "Price of a spot instance for an hour, as the spec says it.", append(labels, "currency")...)
	stockout := s.gauge("spot_zone_stockout_timestamp_seconds", "When the zone last had no spot instance to give.", labels...)
	wrong := s.gauge("spotinstancevm_condition_false", "1 for each condition of a SpotInstanceVM that is False.",
		"namespace", "spot_instance_vm", "condition", "reason")
	s.collect = func(ctx context.Context, send sender) error {
		list, err := reconciling.List[*spotv1alpha1.SpotInstanceVM](ctx, vms, &spotv1alpha1.SpotInstanceVMList{}, client.UnsafeDisableDeepCopy)
		if err != nil {
			return err
		}
		type group struct{ zone, state, model string }
		counts := map[group]int{}
		for i, vm := range list {
			for j := range vm.Status.ProvisionedInstances {
				entry := &vm.Status.ProvisionedInstances[j]
				counts[group{entry.Zone, string(entry.State), string(entry.ProvisioningModel)}]++
			}
			for j := range vm.Status.Zones {
				zone := &vm.Status.Zones[j]
				labels := []string{vm.Namespace, vm.Name, zone.Zone, zone.MachineType}
				send(preemptions, float64(zone.Preemptions), labels...)
				send.known(hours, labels)(number(zone.InstanceHours))
				send.known(rate, labels)(number(zone.RatePerHour))
				send.known(price, append(labels, vm.Spec.PriceCurrency))(number(zone.PricePerHour))
				send.known(stockout, labels)(timestamp(zone.LastStockoutTime))
			}
			if i < maxObjects {
				send.falseConditions(wrong, vm, vm.Status.Conditions)
			}
		}
		for of, count := range counts {
			send(instances, float64(count), of.zone, of.state, of.model)
		}
		return nil
	}
	return s
}
