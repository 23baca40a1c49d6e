package spotinstancevm

import (
	"cmp"
	"slices"
	"time"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/capacity"
	"github.com/dcnlab/spot-training-operator/internal/cloud"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
)

// settleIn is how long after a node became ready a pod that waits is expected to be bound to it.
const settleIn = 30 * time.Second

// pack works out which pods the instances that there are will take, how many more are needed, and the machine type that is best for these.
func (p *planner) pack() {
	p.kind = p.types[0]
	if p.isDeleting() {
		return
	}
	demand := demandOf(p.pods, p.nodes, p.now)
	var bins []capacity.Bin
	rooms := map[string]capacity.Resources{}
	for _, i := range p.instances {
		kind := p.kindOf(i)
		if _, known := rooms[kind.name]; !known {
			rooms[kind.name] = p.room(kind)
		}
		if bin, ok := p.binOf(i, rooms[kind.name]); ok {
			bins = append(bins, bin)
		}
	}
	best := *p
	best.packFor(p.kind, demand, bins)
	for _, kind := range p.types[1:] {
		other := *p
		other.packFor(kind, demand, bins)
		if kind.shape != nil && (best.kind.shape == nil || other.suitsBetter(&best)) {
			best = other
		}
	}
	*p = best
	for _, i := range p.instances {
		i.used = p.packing.Used[i.Name]
	}
}

// binOf is an instance as room for pods; false for one that is none any more, or takes no pods now.
func (p *planner) binOf(i *instance, room capacity.Resources) (capacity.Bin, bool) {
	switch i.phase() {
	case phaseLaunch, phaseJoin:
		return holding(i, room), true // the scheduler may put pods on a node before it is known to be ready
	case phasePreempted, phaseGone:
		return capacity.Bin{}, false
	case phaseReady:
	}
	if _, notReady := i.notReadySince(); notReady || i.node.Spec.Unschedulable {
		return capacity.Bin{}, false
	}
	bin := holding(i, capacity.Of(i.node.Status.Allocatable))
	bin.Tried = p.triedUntil(i)
	return bin, true
}

// holding is an instance with the pods that are on it.
func holding(i *instance, room capacity.Resources) capacity.Bin {
	bin := capacity.Bin{Name: i.Name, Free: room}
	for _, pod := range i.pods {
		is := demanding(pod)
		bin.Free, bin.Pods = bin.Free.Minus(is.Needs), append(bin.Pods, is)
	}
	return bin
}

// triedUntil is until when the scheduler could have put pods on an instance; zero when it has had no time for that, or that is not known.
func (p *planner) triedUntil(i *instance) time.Time {
	switch at := i.taintedIdleAt(); {
	case p.now.Sub(i.ReadyTime.Time) < settleIn:
		return time.Time{}
	case !i.isTaintedIdle():
		return p.now
	case at.IsZero():
		return time.Time{}
	default: // a pod that was refused in the same second may have come after the taint
		return at.Add(-time.Second)
	}
}

// alive counts the instances that maxInstances bounds: all but those that their provider takes back, whose replacements
// are asked for before they are gone.
func (p *planner) alive() int {
	count := 0
	for _, i := range p.instances {
		if !i.dropped && !i.isEnding() {
			count++
		}
	}
	return count
}

// provide decides on new instances for the pods that have no room.
func (p *planner) provide() {
	needed := p.packing.New
	if p.barred() != "" || len(needed) == 0 || p.kind.shape == nil || p.access.exists() {
		return
	}
	if p.d.hold.isActive(p.now, p.vm.Generation) {
		p.d.lookAgain(p.d.hold.until.Sub(p.now))
		return
	}
	free := p.most() - p.alive()
	for _, pods := range needed {
		if free <= 0 {
			p.atMaxInstances = true
			return
		}
		where := choose(p.vm, p.kind, p.exhausted, p.now)
		if where.none {
			p.exhaustedAll(where)
			return
		}
		i := &instance{ProvisionedInstance: spotv1alpha1.ProvisionedInstance{
			Name: p.vm.Name + "-" + p.newName(), RequestID: p.newID(), Zone: where.zone, MachineType: where.machineType,
			ProvisioningModel: where.model, State: spotv1alpha1.InstancePlanned, AssignedJob: pods[0].Job,
		}, used: true}
		p.instances = append(p.instances, i)
		free--
		p.do(actCreate, i.Name)
		note := "instance " + i.Name + " (" + string(i.ProvisioningModel) + ") is asked for in zone " + i.Zone
		if len(p.types) > 1 {
			note += " as " + i.MachineType
		}
		if i.AssignedJob != "" {
			note += " for " + i.AssignedJob
		}
		p.emit(reporting.Normal(reasons.EventInstanceRequested, "Create", "%s", note))
	}
}

// exhaustedAll notes that no zone has an instance to give, and comes back when the first may have.
func (p *planner) exhaustedAll(where choice) {
	for _, kind := range p.types {
		if other := choose(p.vm, kind, p.exhausted, p.now); other.none && other.until.Before(where.until) {
			where.until = other.until
		}
	}
	p.none = &where
	p.d.lookAgain(where.until.Sub(p.now))
}

// trim deletes instances that are more than maxInstances, are not yet nodes and that no pod needs, the newest first. Of
// ready nodes, those without work go at once then.
func (p *planner) trim() {
	surplus := p.alive() - p.most()
	if surplus <= 0 || p.isDeleting() {
		return
	}
	var unneeded []*instance
	for _, i := range p.instances {
		if !i.dropped && !i.used && i.phase() == phaseJoin {
			unneeded = append(unneeded, i)
		}
	}
	slices.SortFunc(unneeded, func(a, b *instance) int { return b.CreationTime.Compare(a.CreationTime.Time) })
	for _, i := range unneeded[:min(surplus, len(unneeded))] {
		p.markForDeletion(i, "there are more than spec.maxInstances")
		p.gone(i)
	}
}

// most is the number of instances that may exist.
func (p *planner) most() int { return int(cmp.Or(p.vm.Spec.MaxInstances, defaultMaxInstances)) }

// defaultMaxInstances is that of the API, for objects from before it was a default.
const defaultMaxInstances = 2

// isCapacityRefusal says whether the error means that the zone has no such instance to give.
func isCapacityRefusal(err error) bool {
	class := cloud.ClassOf(err)
	return class == cloud.Stockout || class == cloud.Quota
}
