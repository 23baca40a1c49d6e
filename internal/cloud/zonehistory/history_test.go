package zonehistory

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
)

var noon = time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)

const (
	a = "us-central1-a"
	b = "us-central1-b"
	c = "us-central1-c"

	machine, larger = "n1-standard-4", "n1-standard-8"
)

// spotVM has zones a, b and c in this order.
func spotVM(prices ...spotv1alpha1.Price) *spotv1alpha1.SpotInstanceVM {
	vm := &spotv1alpha1.SpotInstanceVM{}
	vm.Spec.GCP.Zone, vm.Spec.GCP.Zones, vm.Spec.GCP.MachineType = a, []string{b, a, c}, machine
	vm.Spec.Prices = prices
	return vm
}

func instance(name, zone string, created time.Time) spotv1alpha1.ProvisionedInstance {
	return spotv1alpha1.ProvisionedInstance{
		Name: name, Zone: zone, ProvisioningModel: spotv1alpha1.ProvisioningSpot, CreationTime: ptr.To(metav1.NewTime(created)),
	}
}

// live has an instance of a zone run until a time and end then.
func live(vm *spotv1alpha1.SpotInstanceVM, zone string, hours float64, preempted bool, end time.Time) {
	one := instance("one", zone, end.Add(-time.Duration(hours*float64(time.Hour))))
	before := vm.DeepCopy()
	before.Status.ProvisionedInstances = append(before.Status.ProvisionedInstances, one)
	after := before.DeepCopy()
	if preempted {
		after.Status.ProvisionedInstances[len(after.Status.ProvisionedInstances)-1].PreemptionNoticeTime = ptr.To(metav1.NewTime(end))
		Follow(before, after, end)
		before = after.DeepCopy()
	}
	after.Status.ProvisionedInstances = after.Status.ProvisionedInstances[:len(after.Status.ProvisionedInstances)-1]
	Follow(before, after, end)
	vm.Status = after.Status
}

func TestAPreemptionCountsOnceAndAtItsNotice(t *testing.T) {
	before := spotVM()
	before.Status.ProvisionedInstances = []spotv1alpha1.ProvisionedInstance{instance("x", b, noon.Add(-2*time.Hour)), instance("y", b, noon.Add(-time.Hour))}
	noticed := before.DeepCopy()
	noticed.Status.ProvisionedInstances[0].PreemptionNoticeTime = ptr.To(metav1.NewTime(noon))

	require.True(t, Follow(before, noticed, noon))
	want := []spotv1alpha1.ZoneHistory{{
		Zone: b, MachineType: "n1-standard-4", Preemptions: 1, InstanceHours: "2", RecentPreemptions: "1", RecentInstanceHours: "2",
		RatePerHour:        "0.04074", // 1.1 / (24 + 2 + the 1 of y)
		LastPreemptionTime: ptr.To(metav1.NewTime(noon)), Time: ptr.To(metav1.NewTime(noon)),
	}}
	assert.Equal(t, want, noticed.Status.Zones)

	gone := noticed.DeepCopy()
	gone.Status.ProvisionedInstances = gone.Status.ProvisionedInstances[1:]
	assert.False(t, Follow(noticed, gone, noon.Add(time.Minute)), "its end is no change")
	assert.Equal(t, want, gone.Status.Zones)

	none := gone.DeepCopy()
	none.Status.ProvisionedInstances = nil
	require.True(t, Follow(gone, none, noon.Add(time.Hour)))
	assert.Equal(t, int64(1), none.Status.Zones[0].Preemptions)
	assert.Equal(t, "4", none.Status.Zones[0].InstanceHours)
}

func TestANoticeThatIsWithdrawnWasNoPreemption(t *testing.T) {
	before := spotVM()
	before.Status.ProvisionedInstances = []spotv1alpha1.ProvisionedInstance{instance("x", b, noon.Add(-2*time.Hour))}
	noticed := before.DeepCopy()
	noticed.Status.ProvisionedInstances[0].PreemptionNoticeTime = ptr.To(metav1.NewTime(noon))
	require.True(t, Follow(before, noticed, noon))
	withdrawn := noticed.DeepCopy()
	withdrawn.Status.ProvisionedInstances[0].PreemptionNoticeTime = nil

	require.True(t, Follow(noticed, withdrawn, noon.Add(time.Minute)))

	zone := withdrawn.Status.Zones[0]
	assert.Equal(t, []any{int64(0), "0", "0", "0"}, []any{zone.Preemptions, zone.InstanceHours, zone.RecentPreemptions, zone.RecentInstanceHours[:1]})
	assert.Equal(t, []string{a, b, c}, Order(withdrawn, machine, noon.Add(time.Minute)))
}

func TestWhatTellsNothingOfAZoneDoesNotCount(t *testing.T) {
	standard, planned := instance("x", a, noon), instance("y", a, noon)
	standard.ProvisioningModel, planned.CreationTime = spotv1alpha1.ProvisioningStandard, nil
	before := spotVM()
	before.Status.ProvisionedInstances = []spotv1alpha1.ProvisionedInstance{standard, planned}
	after := spotVM()
	assert.False(t, Follow(before, after, noon.Add(time.Hour)))
	assert.False(t, Follow(before, before.DeepCopy(), noon.Add(time.Hour)), "time alone is no reason for a write")
	assert.Empty(t, after.Status.Zones)
}

func TestTheOrderOfZones(t *testing.T) {
	cheap := func(zone, price string) spotv1alpha1.Price { return spotv1alpha1.Price{Zone: zone, PerHour: price} }
	for name, test := range map[string]struct {
		vm      *spotv1alpha1.SpotInstanceVM
		happens func(*spotv1alpha1.SpotInstanceVM)
		want    []string
	}{
		"nothing is known":                              {spotVM(), func(*spotv1alpha1.SpotInstanceVM) {}, []string{a, b, c}},
		"a zone took an instance back":                  {spotVM(), func(vm *spotv1alpha1.SpotInstanceVM) { live(vm, a, 1, true, noon) }, []string{b, c, a}},
		"a quiet zone is no better than an unknown one": {spotVM(), func(vm *spotv1alpha1.SpotInstanceVM) { live(vm, b, 100, false, noon) }, []string{a, b, c}},
		"less often is better": {spotVM(), func(vm *spotv1alpha1.SpotInstanceVM) {
			for range 3 {
				live(vm, a, 1, true, noon)
				live(vm, b, 30, true, noon)
				live(vm, c, 5, true, noon)
			}
		}, []string{b, c, a}},
		"a single preemption is forgotten after two days": {spotVM(), func(vm *spotv1alpha1.SpotInstanceVM) { live(vm, a, 1, true, noon.Add(-48*time.Hour)) }, []string{a, b, c}},
		"a bad week is not": {spotVM(), func(vm *spotv1alpha1.SpotInstanceVM) {
			for range 5 {
				live(vm, a, 1, true, noon.Add(-48*time.Hour))
			}
		}, []string{b, c, a}},
		"a stockout comes last, the latest at the end": {spotVM(), func(vm *spotv1alpha1.SpotInstanceVM) {
			live(vm, c, 1, true, noon)
			Stockout(vm, machine, b, noon.Add(-time.Minute))
			Stockout(vm, machine, a, noon)
		}, []string{c, b, a}},
		"a stockout is forgotten":               {spotVM(), func(vm *spotv1alpha1.SpotInstanceVM) { Stockout(vm, machine, a, noon.Add(-stockoutMemory)) }, []string{a, b, c}},
		"the cheapest first":                    {spotVM(cheap(a, "0.5"), cheap(b, "0.4"), cheap("", "0.3")), func(*spotv1alpha1.SpotInstanceVM) {}, []string{c, b, a}},
		"a zone without a price is worth a try": {spotVM(cheap(a, "0.5"), cheap(b, "0.4")), func(*spotv1alpha1.SpotInstanceVM) {}, []string{b, c, a}},
		"a little cheaper does not make up for many interruptions": {spotVM(cheap(a, "0.50"), cheap(b, "0.49"), cheap(c, "0.6")), func(vm *spotv1alpha1.SpotInstanceVM) {
			for range 12 {
				live(vm, b, 0.5, true, noon)
			}
		}, []string{a, b, c}},
		"half the price does": {spotVM(cheap(a, "0.50"), cheap(b, "0.25"), cheap(c, "0.6")), func(vm *spotv1alpha1.SpotInstanceVM) {
			for range 12 {
				live(vm, b, 0.5, true, noon)
			}
		}, []string{b, a, c}},
		"another machine type has a history of its own": {spotVM(), func(vm *spotv1alpha1.SpotInstanceVM) {
			live(vm, a, 1, true, noon)
			vm.Spec.GCP.MachineType = larger
		}, []string{a, b, c}},
	} {
		t.Run(name, func(t *testing.T) {
			test.happens(test.vm)
			assert.Equal(t, test.want, Order(test.vm, test.vm.Spec.GCP.MachineType, noon))
		})
	}
}

func TestEvidenceFades(t *testing.T) {
	vm := spotVM()
	live(vm, a, 10, true, noon)
	fresh := sumsOf(find(vm, machine, a), noon)
	old := sumsOf(find(vm, machine, a), noon.Add(halfLife))
	assert.InDelta(t, fresh.preemptions/2, old.preemptions, 1e-6)
	assert.InDelta(t, fresh.hours/2, old.hours, 1e-6)
	assert.Less(t, old.rate(), fresh.rate())
	assert.InDelta(t, priorPreemptions/priorHours, sumsOf(find(vm, machine, a), noon.Add(100*halfLife)).rate(), 1e-6)
	assert.InDelta(t, 1, sumsOf(find(vm, machine, a), noon.Add(-time.Hour)).preemptions, 1e-6, "a clock that was set back does no harm")
}

func TestTheHistoryIsBounded(t *testing.T) {
	vm := spotVM()
	for i := range 3 * maxZones {
		vm.Spec.GCP.MachineType = fmt.Sprintf("n1-standard-%d", i)
		live(vm, a, 1, true, noon.Add(time.Duration(i)*time.Minute))
	}
	assert.Len(t, vm.Status.Zones, maxZones)
	assert.NotNil(t, find(vm, vm.Spec.GCP.MachineType, a), "the newest stays")
}

func TestThePriceOfAZone(t *testing.T) {
	vm := spotVM(
		spotv1alpha1.Price{PerHour: "0.4"}, spotv1alpha1.Price{Zone: b, PerHour: "0.35"},
		spotv1alpha1.Price{ProvisioningModel: spotv1alpha1.ProvisioningStandard, PerHour: "1.2"},
	)
	vm.Spec.PriceCurrency = "EUR"
	assert.Equal(t, map[string]string{"ml.example.com/price-per-hour": "0.35", "ml.example.com/price-currency": "EUR"},
		NodeAnnotations(vm, machine, b, spotv1alpha1.ProvisioningSpot))
	assert.Equal(t, "0.4", NodeAnnotations(vm, machine, a, "")["ml.example.com/price-per-hour"])
	assert.Equal(t, "1.2", NodeAnnotations(vm, machine, a, spotv1alpha1.ProvisioningStandard)["ml.example.com/price-per-hour"])
	assert.Nil(t, NodeAnnotations(spotVM(), machine, a, spotv1alpha1.ProvisioningSpot))
}

func TestThePriceOfAMachineType(t *testing.T) {
	vm := spotVM(
		spotv1alpha1.Price{PerHour: "0.1"}, spotv1alpha1.Price{MachineType: larger, PerHour: "0.2"},
		spotv1alpha1.Price{Zone: b, PerHour: "0.3"}, spotv1alpha1.Price{Zone: b, MachineType: larger, PerHour: "0.4"},
	)
	vm.Spec.GCP.MachineTypes = []string{larger}
	for _, test := range []struct{ machineType, zone, want string }{
		{machine, a, "0.1"}, {larger, a, "0.2"}, {machine, b, "0.3"}, {larger, b, "0.4"},
	} {
		perHour, _, ok := Price(vm, test.machineType, test.zone, spotv1alpha1.ProvisioningSpot)
		assert.True(t, ok)
		assert.Equal(t, test.want, perHour, "%s in %s", test.machineType, test.zone)
	}
	_, _, ok := Price(vm, machine, a, spotv1alpha1.ProvisioningStandard)
	assert.False(t, ok)
}

func TestEachMachineTypeHasAHistory(t *testing.T) {
	vm := spotVM(spotv1alpha1.Price{PerHour: "1"})
	vm.Spec.GCP.MachineTypes = []string{larger}
	before := vm.DeepCopy()
	for _, one := range []spotv1alpha1.ProvisionedInstance{instance("old", a, noon.Add(-time.Hour)), instance("new", a, noon.Add(-time.Hour))} {
		if one.Name == "new" {
			one.MachineType = larger
		}
		before.Status.ProvisionedInstances = append(before.Status.ProvisionedInstances, one)
	}
	after := before.DeepCopy()
	for range 5 { // of the larger ones many are taken back
		for i := range after.Status.ProvisionedInstances {
			if one := &after.Status.ProvisionedInstances[i]; one.MachineType == larger {
				one.PreemptionNoticeTime = ptr.To(metav1.NewTime(noon))
			}
		}
		require.True(t, Follow(before, after, noon))
	}
	assert.EqualValues(t, 5, find(after, larger, a).Preemptions)
	assert.Nil(t, find(after, machine, a))
	assert.Equal(t, []string{b, c, a}, Order(after, larger, noon))
	assert.Equal(t, []string{a, b, c}, Order(after, machine, noon))
	calm, ok := Cost(after, machine, a, spotv1alpha1.ProvisioningSpot, noon)
	require.True(t, ok)
	wild, _ := Cost(after, larger, a, spotv1alpha1.ProvisioningSpot, noon)
	assert.Greater(t, wild, calm)
	always, _ := Cost(after, larger, a, spotv1alpha1.ProvisioningStandard, noon)
	assert.Zero(t, always, "the price at full price is not known")
}
