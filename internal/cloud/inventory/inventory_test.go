package inventory_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/dcnlab/spot-training-operator/internal/cloud"
	"github.com/dcnlab/spot-training-operator/internal/cloud/gcp"
	"github.com/dcnlab/spot-training-operator/internal/cloud/inventory"
	"github.com/dcnlab/spot-training-operator/test/fakes/fakegce"
)

const (
	interval = 30 * time.Second
	zoneA    = "us-central1-a"
	zoneB    = "us-central1-b"
	cluster  = "0c4f7f0e"
)

func key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "team", Name: name}
}

// bench is an inventory of a Compute Engine, both by the same clock.
type bench struct {
	*inventory.Inventories

	t     *testing.T
	clock *clocktesting.FakeClock
	gce   *fakegce.Server

	mu   sync.Mutex
	told []types.NamespacedName
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, clock: clocktesting.NewFakeClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))}
	b.gce = fakegce.Start(t, fakegce.Options{Clock: b.clock})
	b.Inventories = inventory.New(inventory.Options{
		Provide: func(ctx context.Context, account inventory.Account) (cloud.Provider, error) {
			if string(account.Credentials) == "broken" {
				return nil, errors.New("no JSON")
			}
			return gcp.New(ctx, gcp.Options{
				Project: account.Project, Credentials: account.Credentials, Endpoint: b.gce.URL(), Rate: 10000, Burst: 1000,
			})
		},
		Cluster: cluster, Interval: interval, Clock: b.clock,
		Changed: func(vm types.NamespacedName) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.told = append(b.told, vm)
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		assert.NoError(t, b.Start(ctx))
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return b
}

func (b *bench) follow(vm string, zones ...string) *inventory.Inventory {
	b.t.Helper()
	found, err := b.Follow(b.t.Context(), key(vm), inventory.Account{Project: b.gce.Project(), Credentials: b.gce.CredentialsJSON()}, zones)
	require.NoError(b.t, err)
	return found
}

// create an instance of a SpotInstanceVM.
func (b *bench) create(i *inventory.Inventory, zone, name, vm, uid string) {
	b.t.Helper()
	owner := inventory.Owner{Cluster: cluster, VM: key(vm), UID: types.UID(uid)}
	_, err := i.Provider().Create(b.t.Context(), cloud.InstanceSpec{
		Name: name, Zone: zone, RequestID: fmt.Sprintf("00000000-0000-4000-8000-%012x", len(name)*1000+int(name[len(name)-1])),
		MachineType: "n1-standard-4", Image: "projects/p/global/images/family/node", DiskGB: 50, DiskType: "pd-ssd", Labels: owner.Labels(),
	})
	require.NoError(b.t, err)
}

// take returns who was told since it was last called.
func (b *bench) take() []types.NamespacedName {
	b.mu.Lock()
	defer b.mu.Unlock()
	told := b.told
	b.told = nil
	return told
}

func (b *bench) lists(zone string) int { return b.gce.Calls("compute.instances.list", zone) }

// listed waits until a zone was listed so many times, and the answer was taken in.
func (b *bench) listed(i *inventory.Inventory, zone string, times int) {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		return b.lists(zone) >= times && i.Zone(zone, key("a")).Began.Equal(b.clock.Now())
	}, time.Minute, time.Millisecond, "lists of %s", zone)
}

// pass lets time go by.
func (b *bench) pass(d time.Duration) {
	b.t.Helper()
	require.Eventually(b.t, b.clock.HasWaiters, time.Minute, time.Millisecond)
	b.clock.Step(d)
}

func TestAZoneIsListedOnceForAll(t *testing.T) {
	b := newBench(t)
	one := b.follow("a", zoneA)
	for n := range 99 {
		assert.Same(t, one, b.follow(fmt.Sprintf("b%d", n), zoneA), "one inventory for the same credentials")
	}
	b.listed(one, zoneA, 1)
	for times := 2; times <= 5; times++ {
		b.pass(interval)
		b.listed(one, zoneA, times)
	}
	assert.Equal(t, 5, b.lists(zoneA))
	assert.Zero(t, b.lists(zoneB))
	assert.Equal(t, 5, b.gce.Calls("", ""), "and nothing else is asked")
}

func TestOnlyThoseAreToldWhoseInstancesChanged(t *testing.T) {
	b := newBench(t)
	i := b.follow("a", zoneA)
	b.follow("b", zoneA)
	b.listed(i, zoneA, 1)
	require.Eventually(t, func() bool { return len(b.take()) > 0 }, time.Minute, time.Millisecond, "the first list is a change for all")

	b.create(i, zoneA, "a-11111", "a", "1")
	b.gce.Settle()
	b.pass(interval)
	b.listed(i, zoneA, 2)
	require.Eventually(t, func() bool { b.mu.Lock(); defer b.mu.Unlock(); return len(b.told) > 0 }, time.Minute, time.Millisecond)
	assert.Equal(t, []types.NamespacedName{key("a")}, b.take())
	found := b.Of(key("a"))
	require.Len(t, found, 1)
	assert.Equal(t, "a-11111", found[0].Name)
	assert.Equal(t, types.UID("1"), found[0].Owner.UID)
	assert.Len(t, i.Zone(zoneA, key("a")).Instances, 1)
	assert.Empty(t, b.Of(key("b")))

	b.pass(interval)
	b.listed(i, zoneA, 3)
	assert.Empty(t, b.take(), "nothing changed")

	_, err := i.Provider().Delete(t.Context(), zoneA, "a-11111", "00000000-0000-4000-8000-000000000001")
	require.NoError(t, err)
	b.gce.Settle()
	b.pass(interval)
	b.listed(i, zoneA, 4)
	require.Eventually(t, func() bool { return len(b.Of(key("a"))) == 0 }, time.Minute, time.Millisecond)
}

func TestInstancesOfOthersAreNotSeen(t *testing.T) {
	b := newBench(t)
	i := b.follow("a", zoneA)
	b.listed(i, zoneA, 1)
	_, err := i.Provider().Create(t.Context(), cloud.InstanceSpec{
		Name: "a-22222", Zone: zoneA, RequestID: "00000000-0000-4000-8000-000000000002", MachineType: "n1-standard-4",
		Image: "projects/p/global/images/family/node", DiskGB: 50, DiskType: "pd-ssd",
		Labels: inventory.Owner{Cluster: "another", VM: key("a"), UID: "1"}.Labels(),
	})
	require.NoError(t, err)
	b.pass(interval)
	b.listed(i, zoneA, 2)
	assert.Empty(t, b.Of(key("a")))
}

func TestARefreshIsSoonAndTellsWhoAskedForIt(t *testing.T) {
	b := newBench(t)
	i := b.follow("a", zoneA)
	b.listed(i, zoneA, 1)
	require.Eventually(t, func() bool { return len(b.take()) > 0 }, time.Minute, time.Millisecond)
	for range 20 {
		i.Refresh(key("a"), zoneA)
	}
	b.pass(2 * time.Second)
	b.listed(i, zoneA, 2)
	require.Eventually(t, func() bool { return len(b.take()) == 1 }, time.Minute, time.Millisecond)
	assert.Equal(t, 2, b.lists(zoneA), "twenty refreshes are one list")
}

func TestAListThatFailsIsToldOnceAndChangesNothing(t *testing.T) {
	b := newBench(t)
	i := b.follow("a", zoneA)
	b.listed(i, zoneA, 1)
	b.create(i, zoneA, "a-11111", "a", "1")
	b.pass(interval)
	b.listed(i, zoneA, 2)
	require.Eventually(t, func() bool { return len(b.Of(key("a"))) == 1 }, time.Minute, time.Millisecond)
	began := i.Zone(zoneA, key("a")).Began
	b.take()

	b.gce.Deny("compute.instances.list")
	b.pass(interval)
	require.Eventually(t, func() bool { return i.Zone(zoneA, key("a")).Err != nil }, time.Minute, time.Millisecond)
	assert.Equal(t, cloud.Permission, cloud.ClassOf(i.Zone(zoneA, key("a")).Err))
	assert.Equal(t, began, i.Zone(zoneA, key("a")).Began)
	assert.Len(t, b.Of(key("a")), 1, "what was known stays known")
	require.Eventually(t, func() bool { return len(b.take()) == 1 }, time.Minute, time.Millisecond)

	b.gce.Allow()
	b.pass(interval)
	require.Eventually(t, func() bool { return i.Zone(zoneA, key("a")).Err == nil }, time.Minute, time.Millisecond)
	require.Eventually(t, func() bool { return len(b.take()) == 1 }, time.Minute, time.Millisecond)
}

func TestZonesAreListedForAWhileAfterTheLastSpotInstanceVMWent(t *testing.T) {
	b := newBench(t)
	i := b.follow("a", zoneA)
	b.listed(i, zoneA, 1)
	b.Forget(key("a"))
	assert.Nil(t, b.Followed(key("a")))
	b.pass(interval)
	b.listed(i, zoneA, 2)
	b.pass(11 * time.Minute)
	require.Eventually(t, func() bool { return i.Zone(zoneA, key("a")).Began.IsZero() }, time.Minute, time.Millisecond)
	b.pass(interval)
	assert.LessOrEqual(t, b.lists(zoneA), 3)
	assert.NotSame(t, i, b.follow("b", zoneA), "credentials that are not in use are forgotten")
}

func TestBrokenCredentialsAreAnErrorAndLeaveTheOldOnesInUse(t *testing.T) {
	b := newBench(t)
	i := b.follow("a", zoneA)
	_, err := b.Follow(t.Context(), key("a"), inventory.Account{Project: "p", Credentials: []byte("broken")}, []string{zoneA})
	assert.ErrorContains(t, err, "set up the client of project p: no JSON")
	assert.Same(t, i, b.Followed(key("a")))
}

// Who gives a new key and withdraws the old one must not see forever what the old one saw last.
func TestReplacedCredentialsHoldOnToNothing(t *testing.T) {
	b := newBench(t)
	old := b.follow("a", zoneA)
	b.listed(old, zoneA, 1)
	b.create(old, zoneA, "a-1", "a", "uid")
	b.pass(interval)
	b.listed(old, zoneA, 2)
	require.Len(t, b.Of(key("a")), 1)

	// The same key, as another text. Of two lists at the same moment neither is the newer.
	b.pass(time.Second)
	fresh, err := b.Follow(t.Context(), key("a"), inventory.Account{
		Project: b.gce.Project(), Credentials: append(b.gce.CredentialsJSON(), '\n'),
	}, []string{zoneA})
	require.NoError(t, err)
	require.NotSame(t, old, fresh)
	require.Eventually(t, func() bool { return !fresh.Zone(zoneA, key("a")).Began.IsZero() }, time.Minute, time.Millisecond)
	found := b.Of(key("a"))
	require.Len(t, found, 1, "each instance once")
	assert.Same(t, fresh, found[0].In)
}
