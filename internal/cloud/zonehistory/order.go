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

// TypeOf is the machine type of an instance. Those from before there were several do not name it.
func TypeOf(vm *spotv1alpha1.SpotInstanceVM, one *spotv1alpha1.ProvisionedInstance) string {
	return cmp.Or(one.MachineType, vm.Spec.GCP.MachineType)
}

// Cost of an hour of training on an instance: its price, with what preemptions add to it; false when the price is not known.
func Cost(vm *spotv1alpha1.SpotInstanceVM, machineType, zone string, model spotv1alpha1.ProvisioningModel, now time.Time) (float64, bool) {
	perHour, _, ok := Price(vm, machineType, zone, model)
	cost := number(perHour)
	if model != spotv1alpha1.ProvisioningStandard {
		cost *= wasted(vm, machineType, zone, now)
	}
	return cost, ok
}

// wasted is how much longer training takes in a zone than without the preemptions that it has shown, as a factor.
func wasted(vm *spotv1alpha1.SpotInstanceVM, machineType, zone string, now time.Time) float64 {
	return 1 + interruption*sumsOf(find(vm, machineType, zone), now).and(running(vm, machineType, zone, now)).proven()
}

// Order has the zones first in which the next spot instance of a machine type should be tried first: those where an hour of training will
// probably cost least. That is the price of an hour, plus what preemptions add to it; a zone must have shown that
// it takes instances back. Zones that had nothing to give within the last ten minutes come last, those that said so first
// before the others. The order of the spec decides between equals. Where a price is missing, the zone is taken to cost what
// the cheapest costs.
func Order(vm *spotv1alpha1.SpotInstanceVM, machineType string, now time.Time) []string {
	zones := Zones(vm)
	least := 0.0
	for _, zone := range zones {
		if price := priceOf(vm, machineType, zone); price > 0 && (least == 0 || price < least) {
			least = price
		}
	}
	// rank of a zone, where less is better: when it last had nothing to give, if that is still to be remembered, and the cost of an hour of training.
	rank := func(zone string) (stockout time.Time, cost float64) {
		known := find(vm, machineType, zone)
		if known != nil && known.LastStockoutTime != nil && now.Sub(known.LastStockoutTime.Time) < stockoutMemory {
			stockout = known.LastStockoutTime.Time
		}
		return stockout, cmp.Or(priceOf(vm, machineType, zone), least, 1) * wasted(vm, machineType, zone, now)
	}
	slices.SortStableFunc(zones, func(a, b string) int {
		stockout, cost := rank(a)
		otherStockout, otherCost := rank(b)
		return cmp.Or(stockout.Compare(otherStockout), cmp.Compare(cost, otherCost))
	})
	return zones
}

// priceOf is what a spot instance costs in a zone; 0 when that is not known.
func priceOf(vm *spotv1alpha1.SpotInstanceVM, machineType, zone string) float64 {
	perHour, _, _ := Price(vm, machineType, zone, spotv1alpha1.ProvisioningSpot)
	return number(perHour)
}
