package spotinstancevm

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/capacity"
	"github.com/dcnlab/spot-training-operator/internal/cloud"
	"github.com/dcnlab/spot-training-operator/internal/cloud/inventory"
	"github.com/dcnlab/spot-training-operator/internal/cloud/zonehistory"
	"github.com/dcnlab/spot-training-operator/internal/metrics"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
)

// kind of an action.
type actionKind string

const (
	actCreate   actionKind = "create"   // ask the provider for the instance, with the request ID of its entry
	actDelete   actionKind = "delete"   // ask the provider to delete it
	actAwait    actionKind = "await"    // read how far the operation of either is
	actLook     actionKind = "look"     // read the instance from the provider
	actWhy      actionKind = "why"      // ask the provider why it stopped
	actRefresh  actionKind = "refresh"  // have the zone listed
	actLabel    actionKind = "label"    // put our labels onto its node, and open it to pods
	actMark     actionKind = "mark"     // leave a notice on its node
	actTaint    actionKind = "taint"    // keep pods off its idle node
	actUntaint  actionKind = "untaint"  // let pods onto it again
	actDropNode actionKind = "dropNode" // delete the Node of an instance that is gone
	actFindNode actionKind = "findNode" // ask the API server whether there is one that the cache does not show
	actLogin    actionKind = "login"    // join it over SSH
	actRevoke   actionKind = "revoke"   // revoke what it joined with
)

// action is something to do outside of the status.
type action struct {
	kind actionKind
	// name of the instance; of the zone for actRefresh.
	name string
}

// desired is what a plan comes to.
type desired struct {
	status spotv1alpha1.SpotInstanceVMStatus
	// finalizer that the object must have before the status is written, or not have any more.
	finalizer, release bool
	// secret that must stay as long as the object has instances; empty for none.
	secret  string
	actions []action
	// events to emit, and what to count, once the status is written.
	events []reporting.Event
	counts []func(*metrics.SpotInstances)
	// again is when to look again; 0 when a change will tell.
	again time.Duration

	// What the memory takes over: the hold, and what these note.
	hold   hold
	memory []func(*vmMemo)
}

func (d *desired) lookAgain(in time.Duration) {
	d.again = reconciling.Sooner(d.again, in)
}

// remember notes something of an instance.
func (d *desired) remember(name string, edit func(*memo)) {
	d.memory = append(d.memory, func(m *vmMemo) { edit(m.instance(name)) })
}

// planner makes a plan. It keeps what is being decided.
type planner struct {
	observed

	d         desired
	instances []*instance
	demand    []capacity.Pod
	packing   capacity.Packing
	// none is set when an instance is needed and no zone has one.
	none *choice
	// problem that was met now.
	problem problem
	// stockouts are zones that had no instance of a machine type to give.
	stockouts []offer
	// kind of the instances that are asked for now.
	kind machineType
	// atMaxInstances says that maxInstances keeps it from asking for more.
	atMaxInstances bool
	// short is the last job in a queue whose pods need more instances than there may be.
	short *shortage
}

// plan decides everything: it is a pure function of what was observed.
func plan(o observed) desired {
	p := &planner{observed: o, d: desired{status: *o.vm.Status.DeepCopy(), hold: o.memo.hold}}
	p.instances = slices.Clone(o.instances)
	for _, i := range p.instances {
		p.mirror(i)
	}
	p.adopt()
	p.pack()
	for _, i := range p.instances {
		if i.isAbsent() && !i.looked && i.State != spotv1alpha1.InstanceDeleting {
			p.do(actLook, i.Name)
		}
		switch i.phase() {
		case phaseLaunch:
			p.launch(i)
		case phaseJoin:
			p.join(i)
		case phaseReady:
			p.ready(i)
		case phasePreempted:
			p.preempted(i)
		case phaseGone:
		}
		if i.State == spotv1alpha1.InstanceDeleting { // for whatever reason
			p.gone(i)
		}
	}
	p.provide()
	p.trim()
	p.finish()
	return p.d
}

// do something once.
func (p *planner) do(what actionKind, name string) {
	if a := (action{what, name}); !slices.Contains(p.d.actions, a) {
		p.d.actions = append(p.d.actions, a)
	}
}

// emit an event.
func (p *planner) emit(e reporting.Event) { p.d.events = append(p.d.events, e) }

// count something that happened.
func (p *planner) count(count func(*metrics.SpotInstances)) { p.d.counts = append(p.d.counts, count) }

// isDeleting says whether the SpotInstanceVM itself is being deleted.
func (p *planner) isDeleting() bool { return p.vm.DeletionTimestamp != nil }

// mirror takes over what the provider and the node say of an instance.
func (p *planner) mirror(i *instance) {
	if i.State == spotv1alpha1.InstanceDeleting {
		return
	}
	if i.seen != nil && !i.isConfirmed() && !p.isGranted(i) {
		return
	}
	if i.seen != nil {
		if !i.isConfirmed() {
			p.confirm(i)
		}
		if created := i.seen.Created; !created.IsZero() && created.Before(i.CreationTime.Time) {
			i.CreationTime = &metav1.Time{Time: created} // the manager learned later that the instance exists
		}
		i.State = spotv1alpha1.InstanceState(i.seen.State)
		i.InstanceID = cmp.Or(i.seen.ID, i.InstanceID)
		i.InternalIP, i.ExternalIP = i.seen.InternalIP, i.seen.ExternalIP
	}
	if i.node != nil {
		i.NodeName = i.node.Name
		if i.PreemptionNoticeTime != nil && !i.noticed && !i.isStopped() { // the notice was withdrawn
			i.PreemptionNoticeTime = nil
		}
	}
	i.JoinedCluster = i.node != nil
}

// isGranted says whether the provider has granted an instance that it shows: until then it may vanish again for lack of
// room, and the operation says why.
func (p *planner) isGranted(i *instance) bool {
	granted := i.memo.create.isSettled() && i.memo.create.err == nil
	return granted || i.RequestID == "" || i.seen.State != string(spotv1alpha1.InstanceProvisioning)
}

// confirm notes that an instance exists.
func (p *planner) confirm(i *instance) {
	// By the provider's clock where it tells: the Node of the instance is not older, whatever the manager's says.
	created := cmp.Or(i.memo.create.operation.Began, p.now)
	if i.seen != nil {
		created = cmp.Or(i.seen.Created, created)
	}
	i.CreationTime = &metav1.Time{Time: created}
	i.State = spotv1alpha1.InstanceProvisioning
	if i.seen != nil {
		i.State = spotv1alpha1.InstanceState(i.seen.State)
	}
	i.Message = ""
	// That it exists says nothing of whether it will join, or help the pods that wait.
	if why := p.d.hold.problem.reason; why != reasons.JoinFailed && why != reasons.PodDoesNotFit {
		p.d.hold = hold{}
	}
	p.emit(reporting.Normal(reasons.EventInstanceCreated, "Create", "instance %s (%s) exists in zone %s", i.Name, i.ProvisioningModel, i.Zone))
}

// adopt takes in instances that are ours by their labels and that the status does not know: it was lost, or the answer to
// the request that made them.
func (p *planner) adopt() {
	for _, found := range p.unrecorded {
		if at, ok := p.memo.ended[found.Name]; ok && !found.AsOf.After(at) { // the list is older than its end
			continue
		}
		// The entry has moved on to another zone, and the list is older than that.
		if slices.ContainsFunc(p.instances, func(i *instance) bool { return i.Name == found.Name }) {
			continue
		}
		i := p.attach(&instance{ProvisionedInstance: *entryOfFound(found), seen: &found.Instance, asOf: found.AsOf})
		p.mirror(i)
		p.instances = append(p.instances, i)
		p.emit(reporting.Warning(reasons.EventInstanceAdopted, "Adopt",
			"instance %s in zone %s has the labels of this SpotInstanceVM and was not in its status", i.Name, i.Zone))
	}
}

// entryOfFound is the entry of the status for an instance that none has.
func entryOfFound(found inventory.Found) *spotv1alpha1.ProvisionedInstance {
	model := spotv1alpha1.ProvisioningStandard
	if found.Spot {
		model = spotv1alpha1.ProvisioningSpot
	}
	return &spotv1alpha1.ProvisionedInstance{Name: found.Name, Zone: found.Zone, MachineType: found.MachineType, ProvisioningModel: model}
}

// markForDeletion decides that an instance is deleted.
func (p *planner) markForDeletion(i *instance, why string) {
	i.State = spotv1alpha1.InstanceDeleting
	i.Message = why
	p.emit(reporting.Normal(reasons.EventInstanceDeleting, "Delete", "instance %s in zone %s is deleted: %s", i.Name, i.Zone, why))
}

// abandon decides that an entry goes under which nothing exists.
func (p *planner) abandon(i *instance, why string) {
	i.State = spotv1alpha1.InstanceDeleting
	i.Message = why
}

// isDue says whether a request is due, and otherwise looks again when it is.
func (p *planner) isDue(r *request) bool {
	if p.now.Before(r.next) {
		p.d.lookAgain(r.next.Sub(p.now))
		return false
	}
	return true
}

// isRetryable says whether the same request may go through later.
func isRetryable(err error) bool {
	class := cloud.ClassOf(err)
	return class == cloud.Transient || class == cloud.RateLimited
}

// finish puts the status together.
func (p *planner) finish() {
	s := &p.d.status
	s.ObservedGeneration = p.vm.Generation
	s.ProvisionedInstances = nil
	s.Instances, s.ReadyInstances = 0, 0
	for _, i := range p.instances {
		if i.dropped {
			continue
		}
		s.ProvisionedInstances = append(s.ProvisionedInstances, i.ProvisionedInstance)
		s.Instances++
		if i.phase() == phaseReady {
			s.ReadyInstances++
		}
	}
	// A fixed order keeps two statuses that say the same alike.
	slices.SortStableFunc(s.ProvisionedInstances, func(a, b spotv1alpha1.ProvisionedInstance) int {
		return cmp.Compare(a.Name, b.Name)
	})
	p.d.finalizer = len(s.ProvisionedInstances) > 0
	p.d.secret = p.secretToKeep()
	p.learn()
	if p.isDeleting() {
		p.release()
		return
	}
	p.conditions()
}

// learn takes what happened into the history of the zones, which orders them.
func (p *planner) learn() {
	after := p.vm.DeepCopy()
	after.Status = p.d.status
	zonehistory.Follow(p.vm, after, p.now)
	for _, o := range p.stockouts {
		zonehistory.Stockout(after, o.machineType, o.zone, p.now)
	}
	p.d.status.Zones = after.Status.Zones
}

// release lets the SpotInstanceVM go when it has no instance, and its zones, listed since its deletion and since the last
// request for an instance, show none. Where the provider cannot be asked, the status counts: it knows what was ever asked for.
func (p *planner) release() {
	if len(p.d.status.ProvisionedInstances) > 0 || len(p.unrecorded) > 0 {
		p.conditions()
		return
	}
	for zone, began := range p.listed {
		if !began.After(p.vm.DeletionTimestamp.Time) || !began.After(p.memo.lastSent) {
			p.do(actRefresh, zone)
			p.conditions()
			return
		}
	}
	p.d.release = true
}
