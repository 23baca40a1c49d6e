package fakegce

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"google.golang.org/api/compute/v1"
	"k8s.io/utils/ptr"
)

// Instance is what a test sees of an instance.
type Instance struct {
	Name, Zone, ID, State   string
	MachineType             string
	Spot                    bool
	GPUs                    int64
	Labels, Metadata        map[string]string
	InternalIP              string
	Created, Running, Ended time.Time
}

// Hooks are called one after another, in the order in which things happened, from goroutines of the server's own.
type Hooks struct {
	// OnRunning is called when an instance runs: a test may boot a node for it.
	OnRunning func(Instance)
	// OnPreempted is called when the notice of a preemption is given.
	OnPreempted func(Instance)
	// OnGone is called when an instance that ran is off: its node is dead.
	OnGone func(Instance)
}

// tell calls a hook, after those that were told before; s.mu is held.
func (s *Server) tell(hook func(Instance), instance *instance) {
	if hook == nil || s.ended {
		return
	}
	view, before, told := instance.view(), s.told, make(chan struct{})
	s.told = told
	s.running.Go(func() {
		defer close(told)
		<-before
		select {
		case <-s.closed:
		default:
			hook(view)
		}
	})
}

// Instances are those that exist, by name.
func (s *Server) Instances() []Instance {
	defer s.enter()()
	var all []Instance
	for _, instance := range s.instances {
		all = append(all, instance.view())
	}
	slices.SortFunc(all, func(a, b Instance) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// Instance is one that exists.
func (s *Server) Instance(name string) (Instance, bool) {
	defer s.enter()()
	if instance := s.byName(name); instance != nil {
		return instance.view(), true
	}
	return Instance{}, false
}

// History are all instances that ever were, in the order of their creation; Ended is zero for those that exist.
// The sum of their lives is what is paid for.
func (s *Server) History() []Instance {
	defer s.enter()()
	all := make([]Instance, 0, len(s.history))
	for _, instance := range s.history {
		all = append(all, instance.view())
	}
	return all
}

func (i *instance) view() Instance {
	r := i.resource
	view := Instance{
		Name: r.Name, Zone: i.zone, ID: i.id(), State: r.Status, MachineType: path.Base(r.MachineType),
		Spot: i.spot(), Labels: maps.Clone(r.Labels), Metadata: metadataMap(r.Metadata),
		Created: i.created, Running: i.running, Ended: i.ended,
	}
	for _, gpu := range r.GuestAccelerators {
		view.GPUs += gpu.AcceleratorCount
	}
	for _, network := range r.NetworkInterfaces {
		view.InternalIP = network.NetworkIP
	}
	return view
}

func metadataMap(m *compute.Metadata) map[string]string {
	all := map[string]string{}
	for _, item := range ptr.Deref(m, compute.Metadata{}).Items {
		all[item.Key] = ptr.Deref(item.Value, "")
	}
	return all
}

// regionOf a zone.
func regionOf(zone string) string { return zone[:max(strings.LastIndex(zone, "-"), 0)] }
