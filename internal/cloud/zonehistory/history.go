// Package zonehistory learns from the ends of spot instances in which zone a next one will probably live longest for its
// money. All of it is pure: it reads and writes the status of a SpotInstanceVM, which the caller stores in one piece
// with the change that it records, so that nothing is counted twice or forgotten.
package zonehistory

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
)

const (
	// halfLife is the age at which what happened counts half.
	halfLife = 7 * 24 * time.Hour

	// priorPreemptions in priorHours is what is known of a zone without a history: one of ten instances is taken back in a
	// day, the middle of the 5 to 15 % that Compute Engine stated for preemptible instances. A day of experience weighs as
	// much as that.
	priorPreemptions = 0.1
	priorHours       = 24.0

	// maxZones bounds status.zones.
	maxZones = 32
)

// Follow brings after.Status.Zones up to date with what changed of the instances from one state of the object to the next:
// a notice is a preemption, unless it is withdrawn later, and an instance that is in the status no longer has ended. Only
// spot instances count. It returns whether anything changed.
func Follow(before, after *spotv1alpha1.SpotInstanceVM, now time.Time) bool {
	was := map[string]*spotv1alpha1.ProvisionedInstance{}
	for i := range before.Status.ProvisionedInstances {
		one := &before.Status.ProvisionedInstances[i]
		was[one.Name] = one
	}
	changed := false
	is := map[string]bool{}
	for i := range after.Status.ProvisionedInstances {
		one := &after.Status.ProvisionedInstances[i]
		is[one.Name] = true
		known := was[one.Name]
		if one.PreemptionNoticeTime != nil && (known == nil || known.PreemptionNoticeTime == nil) {
			changed = recordEnd(after, one, one.PreemptionNoticeTime.Time, true, now) || changed
		}
		if one.PreemptionNoticeTime == nil && known != nil && known.PreemptionNoticeTime != nil {
			changed = withdrawPreemption(after, known, now) || changed
		}
	}
	for name, one := range was {
		if !is[name] && one.PreemptionNoticeTime == nil {
			changed = recordEnd(after, one, now, false, now) || changed
		}
	}
	return changed
}

// recordEnd adds the life of an instance to the history of its zone. One that never came to run tells nothing, unless it was
// taken back while it started.
func recordEnd(vm *spotv1alpha1.SpotInstanceVM, one *spotv1alpha1.ProvisionedInstance, at time.Time, preempted bool, now time.Time) bool {
	if one.Zone == "" || one.ProvisioningModel == spotv1alpha1.ProvisioningStandard || one.CreationTime == nil && !preempted {
		return false
	}
	zone, preemptions := entry(vm, TypeOf(vm, one), one.Zone, now), int64(0)
	if preempted {
		preemptions = 1
		if zone.LastPreemptionTime == nil || zone.LastPreemptionTime.Time.Before(at) {
			zone.LastPreemptionTime = ptr.To(metav1.NewTime(at))
		}
	}
	add(vm, zone, preemptions, lived(one, at), now)
	return true
}

// withdrawPreemption takes a preemption back, whose notice was withdrawn.
func withdrawPreemption(vm *spotv1alpha1.SpotInstanceVM, one *spotv1alpha1.ProvisionedInstance, now time.Time) bool {
	zone := find(vm, TypeOf(vm, one), one.Zone)
	if zone == nil || zone.Preemptions == 0 || one.ProvisioningModel == spotv1alpha1.ProvisioningStandard {
		return false
	}
	add(vm, zone, -1, -lived(one, one.PreemptionNoticeTime.Time), now)
	return true
}

// add to the history of a zone, or take from it.
func add(vm *spotv1alpha1.SpotInstanceVM, zone *spotv1alpha1.ZoneHistory, preemptions int64, hours float64, now time.Time) {
	zone.Preemptions += preemptions
	zone.InstanceHours = decimal(max(number(zone.InstanceHours)+hours, 0), 3)
	s := sumsOf(zone, now)
	s.preemptions, s.hours = max(s.preemptions+float64(preemptions), 0), max(s.hours+hours, 0)
	s.write(zone, vm, now)
}

// Stockout remembers that a zone had no instance of a machine type to give.
func Stockout(vm *spotv1alpha1.SpotInstanceVM, machineType, zone string, now time.Time) {
	found := entry(vm, machineType, zone, now)
	found.LastStockoutTime = ptr.To(metav1.NewTime(now))
	sumsOf(found, now).write(found, vm, now)
}

// sums are what happened in a zone, weighted by its age.
type sums struct{ preemptions, hours float64 }

// sumsOf are the sums of a zone as of now.
func sumsOf(zone *spotv1alpha1.ZoneHistory, now time.Time) sums {
	if zone == nil || zone.Time == nil {
		return sums{}
	}
	age := max(now.Sub(zone.Time.Time), 0)
	weight := math.Exp2(-age.Hours() / halfLife.Hours())
	return sums{preemptions: number(zone.RecentPreemptions) * weight, hours: number(zone.RecentInstanceHours) * weight}
}

// write brings the sums as of now into the zone.
func (s sums) write(zone *spotv1alpha1.ZoneHistory, vm *spotv1alpha1.SpotInstanceVM, now time.Time) {
	zone.RecentPreemptions, zone.RecentInstanceHours = decimal(s.preemptions, 4), decimal(s.hours, 4)
	zone.Time = ptr.To(metav1.NewTime(now))
	zone.RatePerHour = decimal(s.and(running(vm, zone.MachineType, zone.Zone, now)).rate(), 5)
	zone.PricePerHour, _, _ = Price(vm, zone.MachineType, zone.Zone, spotv1alpha1.ProvisioningSpot)
}

// and adds hours in which nothing was taken back.
func (s sums) and(hours float64) sums {
	s.hours += hours
	return s
}

// rate is the number of preemptions to be expected per instance hour: the mean of the posterior of a Poisson process whose
// rate has a gamma distribution before anything is known.
func (s sums) rate() float64 { return (priorPreemptions + s.preemptions) / (priorHours + s.hours) }

// proven is the rate that the history shows beyond doubt, a standard deviation below the expected one. It is 0 for a zone
// without preemptions, whether it has a history or not: so that an unknown zone is tried rather than one of
// which something bad is.
func (s sums) proven() float64 {
	events := priorPreemptions + s.preemptions
	return max(events-math.Sqrt(events), 0) / (priorHours + s.hours)
}

// running are the hours so far of the spot instances of a machine type that run in a zone and have no notice. They are in no sum yet.
func running(vm *spotv1alpha1.SpotInstanceVM, machineType, zone string, now time.Time) float64 {
	hours := 0.0
	for i := range vm.Status.ProvisionedInstances {
		one := &vm.Status.ProvisionedInstances[i]
		if one.Zone == zone && TypeOf(vm, one) == machineType && one.ProvisioningModel != spotv1alpha1.ProvisioningStandard && one.PreemptionNoticeTime == nil {
			hours += lived(one, now)
		}
	}
	return hours
}

// lived is how long an instance existed until a time, in hours.
func lived(one *spotv1alpha1.ProvisionedInstance, until time.Time) float64 {
	if one.CreationTime == nil {
		return 0
	}
	return max(until.Sub(one.CreationTime.Time), 0).Hours()
}

// find is the history of a zone for a machine type; nil when there is none.
func find(vm *spotv1alpha1.SpotInstanceVM, machineType, zone string) *spotv1alpha1.ZoneHistory {
	for i := range vm.Status.Zones {
		if one := &vm.Status.Zones[i]; one.Zone == zone && one.MachineType == machineType {
			return one
		}
	}
	return nil
}

// entry is the history of a zone, which is begun when there is none. The one that was written longest ago makes room.
func entry(vm *spotv1alpha1.SpotInstanceVM, machineType, zone string, now time.Time) *spotv1alpha1.ZoneHistory {
	if found := find(vm, machineType, zone); found != nil {
		return found
	}
	for len(vm.Status.Zones) >= maxZones {
		oldest := slices.MinFunc(vm.Status.Zones, func(a, b spotv1alpha1.ZoneHistory) int {
			return ptr.Deref(a.Time, metav1.Time{}).Compare(ptr.Deref(b.Time, metav1.Time{}).Time)
		})
		vm.Status.Zones = slices.DeleteFunc(vm.Status.Zones, func(one spotv1alpha1.ZoneHistory) bool {
			return one.Zone == oldest.Zone && one.MachineType == oldest.MachineType
		})
	}
	vm.Status.Zones = append(vm.Status.Zones, spotv1alpha1.ZoneHistory{
		Zone: zone, MachineType: machineType, Time: ptr.To(metav1.NewTime(now)),
	})
	slices.SortFunc(vm.Status.Zones, func(a, b spotv1alpha1.ZoneHistory) int {
		return cmp.Or(cmp.Compare(a.Zone, b.Zone), cmp.Compare(a.MachineType, b.MachineType))
	})
	return find(vm, machineType, zone)
}

// number reads a decimal number of the status; 0 for what is none.
func number(text string) float64 {
	value, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(value) || math.IsInf(value, 0) || value < 0 {
		return 0
	}
	return value
}

func decimal(value float64, digits int) string {
	shift := math.Pow10(digits)
	return strconv.FormatFloat(math.Round(value*shift)/shift, 'f', -1, 64)
}
