package inventory

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dcnlab/spot-training-operator/internal/cloud"
)

// Inventory is what is known of the zones of one account.
type Inventory struct {
	all      *Inventories
	id       string // of the account
	project  string
	provider cloud.Provider
	zones    map[string]*zone
}

// Provider of the account.
func (i *Inventory) Provider() cloud.Provider { return i.provider }

// Project of the account.
func (i *Inventory) Project() string { return i.project }

// Snapshot is what a zone's last list said of one SpotInstanceVM.
type Snapshot struct {
	// Began is when the last list that succeeded was asked for; zero when none has yet. What was created before is in it,
	// or does not exist.
	Began time.Time
	// Err is why the last list failed; nil when it did not.
	Err error
	// Instances of the SpotInstanceVM, whatever its UID.
	Instances []cloud.Instance
}

// Zone returns what is known of a zone.
func (i *Inventory) Zone(name string, vm types.NamespacedName) Snapshot {
	i.all.mu.Lock()
	defer i.all.mu.Unlock()
	z := i.zones[name]
	if z == nil {
		return Snapshot{}
	}
	return Snapshot{Began: z.began, Err: z.err, Instances: z.byVM[vm]}
}

// Refresh has a zone listed soon, and the SpotInstanceVM told when that is done.
func (i *Inventory) Refresh(vm types.NamespacedName, name string) {
	i.all.mu.Lock()
	defer i.all.mu.Unlock()
	z := i.zones[name]
	if z == nil {
		return
	}
	z.waiting[vm] = true
	if at := z.tried.Add(refreshGap); at.Before(z.due) {
		z.due = at
		i.all.queue.AddAfter(z, at.Sub(i.all.options.Clock.Now()))
	}
}

// follow has the SpotInstanceVM follow these zones and no others.
func (i *Inventory) follow(vm types.NamespacedName, zones []string, now time.Time) {
	keep := map[string]bool{}
	for _, name := range zones {
		keep[name] = true
		z := i.zones[name]
		if z == nil {
			z = &zone{account: i, name: name, followers: map[types.NamespacedName]bool{}, waiting: map[types.NamespacedName]bool{}}
			i.zones[name] = z
			i.all.queue.Add(z)
		}
		z.followers[vm] = true
	}
	i.leave(vm, keep, now)
}

// leave has the SpotInstanceVM follow no zones but those to keep.
func (i *Inventory) leave(vm types.NamespacedName, keep map[string]bool, now time.Time) {
	for name, z := range i.zones {
		if !keep[name] && z.followers[vm] {
			delete(z.followers, vm)
			delete(z.waiting, vm)
			z.left = now
		}
	}
}

// zone is one zone of an account.
type zone struct {
	account   *Inventory
	name      string
	followers map[types.NamespacedName]bool
	waiting   map[types.NamespacedName]bool // for the end of the next list
	left      time.Time                     // when the last follower so far left

	due   time.Time // of the next list
	tried time.Time // when the last list began
	began time.Time // when the last list that succeeded began
	err   error
	byVM  map[types.NamespacedName][]cloud.Instance
}

func (z *zone) isAbandoned(now time.Time) bool {
	// Refused credentials never show more.
	over := len(z.byVM) == 0 || cloud.ClassOf(z.err) == cloud.Permission
	return len(z.followers) == 0 && over && now.Sub(z.left) > linger
}

// take notes the answer to a list and returns whom to tell.
func (z *zone) take(began time.Time, found []cloud.Instance, err error, cluster string) map[types.NamespacedName]bool {
	tell := map[types.NamespacedName]bool{}
	if z.began.IsZero() || (z.err == nil) != (err == nil) || cloud.ClassOf(z.err) != cloud.ClassOf(err) {
		maps.Copy(tell, z.followers)
	}
	z.err = err
	if err != nil {
		return tell
	}
	byVM := map[types.NamespacedName][]cloud.Instance{}
	for _, instance := range found {
		if owner, ok := OwnerOf(&instance); ok && owner.Cluster == cluster {
			byVM[owner.VM] = append(byVM[owner.VM], instance)
		}
	}
	for vm, after := range byVM {
		if !areAlike(z.byVM[vm], after) {
			tell[vm] = true
		}
	}
	for vm := range z.byVM {
		if byVM[vm] == nil {
			tell[vm] = true
		}
	}
	z.began, z.byVM = began, byVM
	return tell
}

// areAlike says whether two lists of instances say the same, in whatever order.
func areAlike(before, after []cloud.Instance) bool {
	told := func(instances []cloud.Instance) map[string][5]string {
		byName := map[string][5]string{}
		for _, i := range instances {
			byName[i.Name] = [...]string{i.ID, i.State, i.StatusMessage, i.InternalIP, i.ExternalIP}
		}
		return byName
	}
	return maps.Equal(told(before), told(after))
}
