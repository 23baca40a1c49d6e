package spotinstancevm

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/cloud"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
)

const (
	small, large, huge = "n1-standard-4", "n1-standard-16", "n1-standard-32"
)

// withTypes lets instances have further machine types.
func withTypes(types ...string) func(*scene) {
	shapes := map[string]*cloud.Shape{
		large: {MilliCPU: 16000, MemoryBytes: 60 << 30}, huge: {MilliCPU: 32000, MemoryBytes: 120 << 30},
	}
	return func(s *scene) {
		s.vm.Spec.GCP.MachineTypes = types
		for _, name := range types {
			s.types = append(s.types, machineType{name: name, shape: shapes[name], zones: []string{"a", "b"}})
		}
	}
}

func priced(prices ...spotv1alpha1.Price) func(*scene) {
	return func(s *scene) { s.vm.Spec.Prices = prices }
}

// outOf has a machine type be refused in both zones.
func outOf(machineType string, until time.Duration) func(*scene) {
	return func(s *scene) {
		for _, zone := range []string{"a", "b"} {
			s.exhausted[offer{zone, spot, machineType}] = exhausted{
				until: noon.Add(until), err: &cloud.Error{Class: cloud.Stockout, Message: "none left"},
			}
		}
	}
}

func unknownShape(machineType string) func(*scene) {
	return func(s *scene) {
		for n := range s.types {
			if s.types[n].name == machineType {
				s.types[n].shape = nil
			}
		}
	}
}

func demands(cpus ...string) func(*scene) {
	return func(s *scene) {
		for n, cpu := range cpus {
			index := string(rune('0' + n))
			s.pods = append(s.pods, aPod("pod-"+index, refused, replica(index), needs(cpu)))
		}
	}
}

func TestTheMachineTypeSuitsThePods(t *testing.T) {
	price := func(machineType, perHour string) spotv1alpha1.Price {
		return spotv1alpha1.Price{MachineType: machineType, PerHour: perHour}
	}
	for name, test := range map[string]struct {
		scene *scene
		want  []string // machine types of the new instances
	}{
		"the first that has room":                          {aScene(withTypes(large), demands("3", "3")), []string{small, small}},
		"a larger one for larger pods":                     {aScene(withTypes(large), demands("10")), []string{large}},
		"the one with room for most":                       {aScene(withTypes(large, huge), demands("3", "20")), []string{huge}},
		"the cheaper one":                                  {aScene(withTypes(large), demands("3"), priced(price(small, "0.2"), price(large, "0.15"))), []string{large}},
		"as many as are needed cost":                       {aScene(withTypes(large), demands("3", "3", "3"), priced(price(small, "0.2"), price(large, "0.5"))), []string{large}},
		"and not more than that":                           {aScene(withTypes(large), demands("3", "3"), priced(price(small, "0.2"), price(large, "0.5"))), []string{small, small}},
		"an unknown price decides nothing":                 {aScene(withTypes(large), demands("3"), priced(price(large, "0.01"))), []string{small}},
		"a larger one where not so many small ones may be": {aScene(withTypes(large), demands("3", "3", "3", "3")), []string{large}},
		"another when there is none left":                  {aScene(withTypes(large), demands("3"), outOf(small, time.Minute)), []string{large}},
		"but not one that is too small":                    {aScene(withTypes(large), demands("10"), outOf(large, time.Minute)), nil},
		"one that is known":                                {aScene(withTypes(large), demands("3"), unknownShape(small)), []string{large}},
		"none when none is known":                          {aScene(withTypes(large), demands("3"), unknownShape(small), unknownShape(large)), nil},
		"what is on its way has its own room": {
			aScene(withTypes(large), demands("10"), has("t4-x", spotv1alpha1.InstancePlanned, func(_ *scene, i *instance) { i.MachineType = large })), nil,
		},
		"what is too small on its way is no help": {aScene(withTypes(large), demands("10"), has("t4-x", spotv1alpha1.InstancePlanned)), []string{large}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, entry := range plan(test.scene.observed).status.ProvisionedInstances {
				if entry.Name != "t4-x" {
					got = append(got, entry.MachineType)
				}
			}
			assert.Equal(t, test.want, got)
		})
	}
}

// Instances that were taken back make a machine type dearer than its price.
func TestTheMachineTypeIsChosenByItsHistoryToo(t *testing.T) {
	s := aScene(withTypes(large), demands("3"), priced(
		spotv1alpha1.Price{MachineType: small, PerHour: "0.20"}, spotv1alpha1.Price{MachineType: large, PerHour: "0.21"},
	))
	require.Equal(t, small, plan(s.observed).status.ProvisionedInstances[0].MachineType)
	for _, zone := range []string{"a", "b"} {
		s.vm.Status.Zones = append(s.vm.Status.Zones, spotv1alpha1.ZoneHistory{
			Zone: zone, MachineType: small, Preemptions: 12, RecentPreemptions: "12", RecentInstanceHours: "6", Time: &metav1.Time{Time: noon},
		})
	}
	require.Equal(t, large, plan(s.observed).status.ProvisionedInstances[0].MachineType)
}

func TestWhatIsAskedForSaysOfWhichTypeItIs(t *testing.T) {
	d := plan(aScene(withTypes(large), demands("10")).observed)
	assert.Contains(t, d.events, reporting.Normal(reasons.EventInstanceRequested, "Create", "%s",
		"instance t4-new1 (SPOT) is asked for in zone a as "+large+" for SpotInstanceJob/bert"))
	d = plan(aScene(demands("3")).observed)
	assert.Contains(t, d.events, reporting.Normal(reasons.EventInstanceRequested, "Create", "%s",
		"instance t4-new1 (SPOT) is asked for in zone a for SpotInstanceJob/bert"), "there is but one")
}

func TestTheFirstTypeThatMayBeThereAgainIsWaitedFor(t *testing.T) {
	d := plan(aScene(withTypes(large), demands("3"), outOf(small, 5*time.Minute), outOf(large, 2*time.Minute)).observed)
	assert.Empty(t, d.status.ProvisionedInstances)
	assert.Equal(t, 2*time.Minute, d.again)
}

// A refused request stays with its machine type: the pods may not fit another.
func TestARefusedInstanceKeepsItsTypeInTheNextZone(t *testing.T) {
	s := aScene(withTypes(large), demands("10"), has("t4-x", spotv1alpha1.InstancePlanned, remembers(memo{create: failed(cloud.Stockout)}), func(_ *scene, i *instance) {
		i.MachineType = large
	}))
	s.exhausted[offer{"a", spot, large}] = exhausted{until: noon.Add(time.Minute), err: &cloud.Error{Class: cloud.Stockout}}
	entry := plan(s.observed).status.ProvisionedInstances[0]
	assert.Equal(t, "b", entry.Zone)
	assert.Equal(t, large, entry.MachineType)
	zones := plan(s.observed).status.Zones
	require.Len(t, zones, 1)
	assert.Equal(t, large, zones[0].MachineType)
}
