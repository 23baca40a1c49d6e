// Package inventory knows which instances the operator has at its providers. It lists each zone of an account once per
// interval, whatever the number of SpotInstanceVMs there, and reports what changed, so that no single instance needs to be
// read.
package inventory

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
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
	Clock clock.WithTicker
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
	// queue has each zone once, as of the time when it is to be listed.
	queue workqueue.TypedDelayingInterface[*zone]

	mu        sync.Mutex
	accounts  map[string]*Inventory
	following map[types.NamespacedName]*Inventory
}

// New returns inventories of no account.
func New(options Options) *Inventories {
	return &Inventories{
		options:  options,
		queue:    workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[*zone]{Clock: options.Clock}),
		accounts: map[string]*Inventory{}, following: map[types.NamespacedName]*Inventory{},
	}
}

// NeedLeaderElection has only the leader list: it alone acts on what is found.
func (s *Inventories) NeedLeaderElection() bool { return true }

// Start lists zones as they fall due, until the context ends.
func (s *Inventories) Start(ctx context.Context) error {
	defer context.AfterFunc(ctx, s.queue.ShutDown)()
	var lists sync.WaitGroup
	for range listsAtOnce {
		lists.Go(func() {
			for z, ended := s.queue.Get(); !ended && ctx.Err() == nil; z, ended = s.queue.Get() {
				s.list(ctx, z)
				s.queue.Done(z)
			}
		})
	}
	lists.Wait()
	return nil
}

// list reads the instances of a zone that is due, unless it is abandoned, and plans the next list.
func (s *Inventories) list(ctx context.Context, z *zone) {
	began := s.options.Clock.Now()
	s.mu.Lock()
	if z.isAbandoned(began) {
		maps.DeleteFunc(z.account.zones, func(_ string, known *zone) bool { return known == z })
		s.release(z.account)
		s.mu.Unlock()
		return
	}
	if wait := z.due.Sub(began); wait > 0 { // it was listed sooner than was planned
		s.queue.AddAfter(z, wait)
		s.mu.Unlock()
		return
	}
	waiting := z.waiting
	z.waiting = map[types.NamespacedName]bool{} // who asks from now on waits for the next
	z.tried, z.due = began, began.Add(s.options.Interval)
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	found, err := z.account.provider.List(ctx, z.name, map[string]string{labelCluster: s.options.Cluster})
	if err == nil {
		err = ctx.Err()
	}
	if s.options.Listed != nil {
		s.options.Listed(z.name, s.options.Clock.Since(began), err)
	}
	s.mu.Lock()
	tell := z.take(began, found, err, s.options.Cluster)
	s.queue.AddAfter(z, z.due.Sub(s.options.Clock.Now()))
	s.mu.Unlock()
	maps.Copy(tell, waiting)
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
		defer s.release(before)
	}
	s.following[vm], s.accounts[found.id] = found, found // it may have been released since it was opened
	found.follow(vm, zones, s.options.Clock.Now())
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
		found = &Inventory{all: s, id: id, project: account.Project, provider: provider, zones: map[string]*zone{}}
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
		s.release(account)
	}
}

// release forgets an account, with its credentials, once no SpotInstanceVM follows it and no zone is listed with it.
func (s *Inventories) release(account *Inventory) {
	if len(account.zones) > 0 || slices.Contains(slices.Collect(maps.Values(s.following)), account) {
		return
	}
	if s.accounts[account.id] == account {
		delete(s.accounts, account.id)
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

// Of are the instances whose labels name the SpotInstanceVM, in all accounts and whatever its UID. Who has a project of their own can put
// these labels on an instance there: only those in the project of the SpotInstanceVM are its own. Accounts of one project see the same
// instances: of each zone the newest list counts, so that credentials which were replaced do not hold on to what they saw last.
func (s *Inventories) Of(vm types.NamespacedName) []Found {
	s.mu.Lock()
	defer s.mu.Unlock()
	type place struct{ project, zone string }
	newest := map[place]*zone{}
	for _, account := range s.accounts {
		for name, z := range account.zones {
			at := place{account.project, name}
			if known := newest[at]; known == nil || known.began.Before(z.began) {
				newest[at] = z
			}
		}
	}
	var all []Found
	for _, z := range newest {
		for _, instance := range z.byVM[vm] {
			owner, _ := OwnerOf(&instance)
			all = append(all, Found{Instance: instance, Owner: owner, In: z.account, AsOf: z.began})
		}
	}
	return all
}
