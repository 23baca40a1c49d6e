package metrics

import (
	"context"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
)

// spotZones turns what the status of every SpotInstanceVM says of zones into figures at the time of a scrape. There are at
// most 32 zones for each, so that the number of series is bounded by that of the objects.
type spotZones struct {
	vms client.Reader

	preemptions, hours, rate, price, stockout *prometheus.Desc
}

// NewSpotZones returns a collector of what was learned of zones, read from the cache.
func NewSpotZones(vms client.Reader) prometheus.Collector {
	labels := []string{"namespace", "spot_instance_vm", "zone", "machine_type"}
	return &spotZones{
		vms: vms,
		preemptions: prometheus.NewDesc("spot_zone_preemptions_total",
			"Spot instances that the provider took back.", labels, nil),
		hours: prometheus.NewDesc("spot_zone_instance_hours_total",
			"Hours that spot instances ran until they were taken back or deleted.", labels, nil),
		rate: prometheus.NewDesc("spot_zone_preemptions_per_hour",
			"Preemptions to be expected for each hour of a spot instance.", labels, nil),
		price: prometheus.NewDesc("spot_zone_price_per_hour",
			"Price of a spot instance for an hour, as the spec says it.", append(labels, "currency"), nil),
		stockout: prometheus.NewDesc("spot_zone_stockout_timestamp_seconds",
			"When the zone last had no spot instance to give.", labels, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *spotZones) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{c.preemptions, c.hours, c.rate, c.price, c.stockout} {
		out <- desc
	}
}

// Collect implements prometheus.Collector.
func (c *spotZones) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	var list spotv1alpha1.SpotInstanceVMList
	if err := c.vms.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		out <- prometheus.NewInvalidMetric(c.rate, err)
		return
	}
	for i := range list.Items {
		vm := &list.Items[i]
		for j := range vm.Status.Zones {
			c.collect(vm, &vm.Status.Zones[j], out)
		}
	}
}

func (c *spotZones) collect(vm *spotv1alpha1.SpotInstanceVM, zone *spotv1alpha1.ZoneHistory, out chan<- prometheus.Metric) {
	labels := []string{vm.Namespace, vm.Name, zone.Zone, zone.MachineType}
	tell := func(desc *prometheus.Desc, kind prometheus.ValueType, text string, more ...string) {
		if value, err := strconv.ParseFloat(text, 64); err == nil {
			out <- prometheus.MustNewConstMetric(desc, kind, value, append(labels[:4:4], more...)...)
		}
	}
	out <- prometheus.MustNewConstMetric(c.preemptions, prometheus.CounterValue, float64(zone.Preemptions), labels...)
	tell(c.hours, prometheus.CounterValue, zone.InstanceHours)
	tell(c.rate, prometheus.GaugeValue, zone.RatePerHour)
	tell(c.price, prometheus.GaugeValue, zone.PricePerHour, vm.Spec.PriceCurrency)
	if at := zone.LastStockoutTime; at != nil {
		out <- prometheus.MustNewConstMetric(c.stockout, prometheus.GaugeValue, unix(at), labels...)
	}
}

func unix(at *metav1.Time) float64 { return float64(at.UnixMilli()) / 1000 }
