package zonehistory

import (
	"cmp"
	"slices"
	"time"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
)

const (
	// interruption is how much of an instance's time a preemption costs: until its successor is a node, and what was
	// trained since the last checkpoint, in hours.
	interruption = 0.5

	// stockoutMemory is how long a zone comes last that had no instance to give.
	stockoutMemory = 10 * time.Minute
)

// Zones are those in which instances may be created, each once, in the order of the spec.
func Zones(vm *spotv1alpha1.SpotInstanceVM) []string {
	var zones []string
	for _, zone := range append([]string{vm.Spec.GCP.Zone}, vm.Spec.GCP.Zones...) {
		if zone != "" && !slices.Contains(zones, zone) {
			zones = append(zones, zone)
		}
	}
	return zones
}

// Order has the zones first in which the next spot instance should be tried first: those where an hour of training will
// probably cost least. That is the price of an hour, plus what preemptions add to it; a zone must have shown that
// it takes instances back. Zones that had nothing to give within the last ten minutes come last, those that said so first
// before the others. The order of the spec decides between equals. Where a price is missing, the zone is taken to cost what
// the cheapest costs.
func Order(vm *spotv1alpha1.SpotInstanceVM, now time.Time) []string {
	zones := Zones(vm)
	least := 0.0
	for _, zone := range zones {
		if price := priceOf(vm, zone); price > 0 && (least == 0 || price < least) {
			least = price
		}
	}
	// rank of a zone, where less is better: when it last had nothing to give, if that is still to be remembered, and the cost of an hour of training.
	rank := func(zone string) (stockout time.Time, cost float64) {
		known := find(vm, zone)
		if known != nil && known.LastStockoutTime != nil && now.Sub(known.LastStockoutTime.Time) < stockoutMemory {
			stockout = known.LastStockoutTime.Time
		}
		preemptions := sumsOf(known, now).and(running(vm, zone, now)).proven()
		return stockout, cmp.Or(priceOf(vm, zone), least, 1) * (1 + interruption*preemptions)
	}
	slices.SortStableFunc(zones, func(a, b string) int {
		stockout, cost := rank(a)
		otherStockout, otherCost := rank(b)
		return cmp.Or(stockout.Compare(otherStockout), cmp.Compare(cost, otherCost))
	})
	return zones
}

// priceOf is what a spot instance costs in a zone; 0 when that is not known.
func priceOf(vm *spotv1alpha1.SpotInstanceVM, zone string) float64 {
	perHour, _, _ := Price(vm, zone, spotv1alpha1.ProvisioningSpot)
	return number(perHour)
}
