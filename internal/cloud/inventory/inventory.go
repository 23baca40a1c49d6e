// Package inventory knows which instances the operator has at its providers. It lists each zone of an account once per
// interval, whatever the number of SpotInstanceVMs there, and reports what changed, so that no single instance needs to be
// read.
package inventory

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/dcnlab/spot-training-operator/internal/cloud"
)

// Account is a project and the credentials with which it is used.
type Account struct {
	// Project that holds the instances.
	Project string
	// Credentials are the contents of a service account key; the operator's own identity when empty.
	Credentials []byte
}

// id tells accounts apart without keeping their credentials.
func (a Account) id() string {
	sum := sha256.Sum256(a.Credentials)
	return a.Project + "/" + hex.EncodeToString(sum[:])
}

// Options of the inventories.
type Options struct {
	// Provide makes the provider of an account. It asks the provider for nothing.
	Provide func(context.Context, Account) (cloud.Provider, error)
	// Cluster whose instances are listed: those of others that share the project are left alone.
	Cluster string
	// Interval between two lists of a zone.
	Interval time.Duration
	// Clock tells the time.
	Clock clock.Clock
	// Changed is told the SpotInstanceVM whose instance changed, or whose account's lists began to fail or
	// to succeed. It may block while many changes wait.
	Changed func(types.NamespacedName)
	// Listed is told how long a list took and how it failed; may be nil.
	Listed func(zone string, took time.Duration, err error)
}

const (
	// refreshGap is the least time between two lists of a zone, however many ask for one.
	refreshGap = 2 * time.Second
	// listsAtOnce bounds the lists that are read at the same time.
	listsAtOnce = 8
	// listTimeout bounds one list.
	listTimeout = time.Minute
	// linger is how long a zone is listed on after its last SpotInstanceVM went, or for as long as it has instances of
	// ours: one whose request was on its way at that time is still found.
	linger = 10 * time.Minute
)

// Inventories are those of all accounts.
type Inventories struct {
	options Options
	wake    chan struct{}
	slots   chan struct{}

	mu        sync.Mutex
	accounts  map[string]*Inventory
	following map[types.NamespacedName]*Inventory
}

// New returns inventories of no account.
func New(options Options) *Inventories {
	return &Inventories{
		options: options, wake: make(chan struct{}, 1), slots: make(chan struct{}, listsAtOnce),
		accounts: map[string]*Inventory{}, following: map[types.NamespacedName]*Inventory{},
	}
}

// NeedLeaderElection has only the leader list: it alone acts on what is found.
func (s *Inventories) NeedLeaderElection() bool { return true }

// Start lists zones as they fall due, until the context ends.
func (s *Inventories) Start(ctx context.Context) error {
	var lists sync.WaitGroup
	defer lists.Wait()
	for {
		wait := s.startDue(ctx, &lists)
		timer := s.options.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-s.wake:
			timer.Stop()
		case <-timer.C():
		}
	}
}

// startDue starts the lists that are due and returns how long none will be.
func (s *Inventories) startDue(ctx context.Context, lists *sync.WaitGroup) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, wait := s.options.Clock.Now(), s.options.Interval
	for _, account := range s.accounts {
		for name, z := range account.zones {
			if z.isAbandoned(now) {
				delete(account.zones, name)
				continue
			}
			if z.listing {
				continue
			}
			if left := z.due.Sub(now); left > 0 {
				wait = min(wait, left)
				continue
			}
			select {
			case s.slots <- struct{}{}:
			default: // the end of a list wakes this again
				continue
			}
			z.listing = true
			lists.Add(1)
			go func() {
				defer lists.Done()
				s.list(ctx, account, name, z)
				<-s.slots
				s.poke()
			}()
		}
	}
	return max(wait, time.Millisecond)
}

func (s *Inventories) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *Inventories) list(ctx context.Context, account *Inventory, name string, z *zone) {
	began := s.options.Clock.Now()
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	found, err := account.provider.List(ctx, name, map[string]string{labelCluster: s.options.Cluster})
	if ctx.Err() != nil && err == nil {
		err = ctx.Err()
	}
	if s.options.Listed != nil {
		s.options.Listed(name, s.options.Clock.Since(began), err)
	}
	s.mu.Lock()
	tell := z.take(began, found, err, s.options.Cluster)
	z.listing, z.due = false, began.Add(s.options.Interval)
	if z.again {
		z.again, z.due = false, began.Add(refreshGap)
	}
	s.mu.Unlock()
	for vm := range tell {
		s.options.Changed(vm)
	}
}

// Follow has the zones listed for a SpotInstanceVM, with this account and no other, and returns the account's inventory.
func (s *Inventories) Follow(ctx context.Context, vm types.NamespacedName, account Account, zones []string) (*Inventory, error) {
	found, err := s.open(ctx, account)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if before := s.following[vm]; before != nil && before != found {
		before.leave(vm, nil, s.options.Clock.Now())
	}
	s.following[vm] = found
	if found.follow(vm, zones, s.options.Clock.Now()) {
		s.poke()
	}
	return found, nil
}

// open returns the inventory of an account.
func (s *Inventories) open(ctx context.Context, account Account) (*Inventory, error) {
	id := account.id()
	s.mu.Lock()
	found := s.accounts[id]
	s.mu.Unlock()
	if found != nil {
		return found, nil
	}
	// The provider outlives the reconciliation that needs it first.
	provider, err := s.options.Provide(context.WithoutCancel(ctx), account)
	if err != nil {
		return nil, fmt.Errorf("set up the client of project %s: %w", account.Project, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if found = s.accounts[id]; found == nil {
		found = &Inventory{all: s, project: account.Project, provider: provider, zones: map[string]*zone{}}
		s.accounts[id] = found
	}
	return found, nil
}

// Followed is the inventory with which a SpotInstanceVM was last followed; nil when it was not, by this process.
func (s *Inventories) Followed(vm types.NamespacedName) *Inventory {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.following[vm]
}

// Forget ends the listing for a SpotInstanceVM. Its zones are listed on for a while.
func (s *Inventories) Forget(vm types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if account := s.following[vm]; account != nil {
		account.leave(vm, nil, s.options.Clock.Now())
		delete(s.following, vm)
	}
}

// Found is an instance in one of the inventories.
type Found struct {
	cloud.Instance

	// Owner that its labels name.
	Owner Owner
	// In is the inventory that has it, AsOf when the list began that showed it.
	In   *Inventory
	AsOf time.Time
}

// place is a zone of a project.
type place struct{ project, zone string }

// newest are the accounts that listed each place last. Accounts of one project see the same instances, and credentials
// that were replaced must not hold on to what they saw last. The caller holds mu.
func (s *Inventories) newest() map[place]*Inventory {
	newest := map[place]*Inventory{}
	for _, account := range s.accounts {
		for name, z := range account.zones {
			at := place{account.project, name}
			if known := newest[at]; known == nil || known.zones[name].began.Before(z.began) {
				newest[at] = account
			}
		}
	}
	return newest
}

// Of are the instances whose labels name the SpotInstanceVM, in all accounts and whatever its UID.
func (s *Inventories) Of(vm types.NamespacedName) []Found {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Found
	for at, account := range s.newest() {
		z := account.zones[at.zone]
		for _, instance := range z.byVM[vm] {
			owner, _ := OwnerOf(instance.Labels)
			all = append(all, Found{Instance: instance, Owner: owner, In: account, AsOf: z.began})
		}
	}
	return all
}
