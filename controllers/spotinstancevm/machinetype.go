package spotinstancevm

import (
	"cmp"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/capacity"
	"github.com/dcnlab/spot-training-operator/internal/cloud"
	"github.com/dcnlab/spot-training-operator/internal/cloud/zonehistory"
)

// machineType is one that instances may have.
type machineType struct {
	name  string
	shape *cloud.Shape // nil while it is not known
	zones []string     // in which instances may be created, in the order to try
}

// What a node keeps of its machine for the kernel, the kubelet and the pods that run on every node, until a node of this
// kind is there and tells it.
const (
	reservedMilliCPU = 250
	reservedMemory   = 300 << 20
	reservedPercent  = 5 // of the memory
)

// kindOf an instance. One that the spec does not name any more has no shape.
func (p *planner) kindOf(i *instance) machineType {
	name := zonehistory.TypeOf(p.vm, &i.ProvisionedInstance)
	if i.seen != nil {
		name = cmp.Or(i.seen.MachineType, name)
	}
	for _, kind := range p.types {
		if kind.name == name {
			return kind
		}
	}
	return machineType{name: name, zones: zonehistory.Zones(p.vm)}
}

// gpus of an instance: those of spec.gpu, else those of the machine type.
func (p *planner) gpus(kind machineType) int64 {
	if p.vm.Spec.GPU != nil {
		return int64(p.vm.Spec.GPU.Count)
	}
	if kind.shape != nil {
		return int64(kind.shape.GPUs)
	}
	return 0
}

// room is what an instance has for pods.
func (p *planner) room(kind machineType) capacity.Resources {
	for _, i := range p.instances {
		if i.phase() == phaseReady && i.node != nil && p.isOf(i, kind) {
			all := capacity.Of(i.node.Status.Allocatable)
			all.MilliCPU -= reservedMilliCPU
			return all
		}
	}
	if kind.shape == nil {
		return capacity.Resources{}
	}
	return capacity.Resources{
		MilliCPU: kind.shape.MilliCPU - reservedMilliCPU,
		Memory:   kind.shape.MemoryBytes - kind.shape.MemoryBytes/100*reservedPercent - reservedMemory,
		GPUs:     p.gpus(kind),
	}
}

// isOf says whether an instance that is a node is of the machine type, with the GPUs that the spec describes now.
func (p *planner) isOf(i *instance, kind machineType) bool {
	return i.seen != nil && p.kindOf(i).name == kind.name && capacity.Of(i.node.Status.Allocatable).GPUs == p.gpus(kind)
}

// packFor works out what the pods need when new instances are of a machine type.
func (p *planner) packFor(kind machineType, demand []capacity.Pod, bins []capacity.Bin) {
	room := p.room(kind)
	p.kind, p.demand = kind, demand
	p.packing = capacity.Pack(demand, bins, room)
	p.packGangs(room)
}

// suitsBetter says whether the machine type of a plan suits the pods better than that of another: more of them fit, and within
// spec.maxInstances; a zone may have such instances; or, when the prices of both are known, an hour of training costs less. Else the order of
// the spec decides.
func (p *planner) suitsBetter(than *planner) bool {
	if mine, other := len(p.packing.TooLarge), len(than.packing.TooLarge); mine != other {
		return mine < other
	}
	if (p.short == nil) != (than.short == nil) {
		return p.short == nil
	}
	if mine, other := p.tooMany(), than.tooMany(); mine != other {
		return mine < other
	}
	where, there := choose(p.vm, p.kind, p.exhausted, p.now), choose(than.vm, than.kind, than.exhausted, than.now)
	if where.none || there.none {
		return there.none && !where.none
	}
	cost, known := p.cost(where.offer)
	other, otherKnown := than.cost(there.offer)
	return known && otherKnown && cost < other
}

// tooMany is how many of the instances that are needed spec.maxInstances does not allow.
func (p *planner) tooMany() int { return max(len(p.packing.New)-max(p.most()-p.alive(), 0), 0) }

// cost of an hour of training on all instances that are needed, with what preemptions add to it.
func (p *planner) cost(o offer) (float64, bool) {
	each, ok := zonehistory.Cost(p.vm, o.machineType, o.zone, cmp.Or(o.model, spotv1alpha1.ProvisioningSpot), p.now)
	return each * float64(len(p.packing.New)), ok
}
