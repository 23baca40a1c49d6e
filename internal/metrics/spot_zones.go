package metrics

import (
	"context"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
)

// NewSpotZones returns a collector of what the status of every SpotInstanceVM says of zones, read from the cache. There are at most 32 zones
// for each, so that the number of series is bounded by that of the objects.
func NewSpotZones(vms client.Reader) prometheus.Collector {
	s := &scraped{}
	labels := []string{"namespace", "spot_instance_vm", "zone", "machine_type"}
	preemptions := s.counter("spot_zone_preemptions_total", "Spot instances that the provider took back.", labels...)
	hours := s.counter("spot_zone_instance_hours_total", "Hours that spot instances ran until they were taken back or deleted.", labels...)
	rate := s.gauge("spot_zone_preemptions_per_hour", "Preemptions to be expected for each hour of a spot instance.", labels...)
	price := s.gauge("spot_zone_price_per_hour", "Price of a spot instance for an hour, as the spec says it.", append(labels, "currency")...)
	stockout := s.gauge("spot_zone_stockout_timestamp_seconds", "When the zone last had no spot instance to give.", labels...)
	s.collect = func(ctx context.Context, send sender) error {
		var list spotv1alpha1.SpotInstanceVMList
		if err := vms.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
			return err
		}
		for i := range list.Items {
			vm := &list.Items[i]
			for j := range vm.Status.Zones {
				zone := &vm.Status.Zones[j]
				labels := []string{vm.Namespace, vm.Name, zone.Zone, zone.MachineType}
				sendText := func(of figure, text string, more ...string) {
					if value, err := strconv.ParseFloat(text, 64); err == nil {
						send(of, value, append(labels[:4:4], more...)...)
					}
				}
				send(preemptions, float64(zone.Preemptions), labels...)
				sendText(hours, zone.InstanceHours)
				sendText(rate, zone.RatePerHour)
				sendText(price, zone.PricePerHour, vm.Spec.PriceCurrency)
				if at, ok := timestamp(zone.LastStockoutTime); ok {
					send(stockout, at, labels...)
				}
			}
		}
		return nil
	}
	return s
}
