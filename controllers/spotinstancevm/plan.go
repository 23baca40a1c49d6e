package spotinstancevm

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/capacity"
	"github.com/dcnlab/spot-training-operator/internal/cloud"
	"github.com/dcnlab/spot-training-operator/internal/cloud/zonehistory"
)

// verb of an act.
type verb string

const (
	actCreate   verb = "create"   // ask the provider for the instance, with the request ID of its entry
	actDelete   verb = "delete"   // ask the provider to delete it
	actAwait    verb = "await"    // read how far the operation of either is
	actLook     verb = "look"     // read the instance from the provider
	actWhy      verb = "why"      // ask the provider why it stopped
	actRefresh  verb = "refresh"  // have the zone listed
	actLabel    verb = "label"    // put our labels onto its node
	actMark     verb = "mark"     // leave a notice on its node
	actTaint    verb = "taint"    // keep pods off its idle node
	actUntaint  verb = "untaint"  // let pods onto it again
	actDropNode verb = "dropNode" // delete the Node of an instance that is gone
	actLogin    verb = "login"    // join it over SSH
	actRevoke   verb = "revoke"   // revoke what it joined with
)

// act is something to do outside of the status.
type act struct {
	verb verb
	// name of the instance; of the zone for actRefresh.
	name string
}

// news is something to tell of by an event and in the metrics, once the status that says it is written.
type news struct {
	kind, reason, action, note string
	count                      func(counter)
}

// counter counts what happened.
type counter interface {
	Ready(zone, model string, took time.Duration)
	Refused(zone, machineType, class string)
	Preempted(zone, machineType string)
}

// desired is what a plan comes to.
type desired struct {
	status spotv1alpha1.SpotInstanceVMStatus
	// finalizer that the object must have before the status is written, or not have any more.
	finalizer, release bool
	acts               []act
	news               []news
	// again is when to look again; 0 when a change will tell.
	again time.Duration

	// What the memory takes over.
	hold      hold
	dropped   []string
	restarted []string // their request to create is another one now
	idle      map[string]time.Time
	empty     map[string]time.Time
}

func (d *desired) lookAgain(in time.Duration) {
	in = max(in, time.Millisecond)
	if d.again == 0 || in < d.again {
		d.again = in
	}
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
	// trouble that was met now.
	trouble trouble
	// stockouts are zones that had no instance to give.
	stockouts []string
	// crowded says that maxInstances keeps it from asking for more.
	crowded bool
	// short is the last job in a queue whose pods need more instances than there may be.
	short *shortage
}

// plan decides everything: it is a pure function of what was observed.
func plan(o observed) desired {
	p := &planner{observed: o, d: desired{
		status: *o.vm.Status.DeepCopy(), hold: o.memo.hold, idle: map[string]time.Time{}, empty: map[string]time.Time{},
	}}
	p.instances = slices.Clone(o.instances)
	for _, i := range p.instances {
		p.mirror(i)
	}
	p.adopt()
	p.pack()
	for _, i := range p.instances {
		if i.absent() && !i.looked && i.State != spotv1alpha1.InstanceDeleting {
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
		if i.State == spotv1alpha1.InstanceDeleting { // whoever decided so
			p.gone(i)
		}
	}
	p.provide()
	p.trim()
	p.finish()
	return p.d
}

// do something once.
func (p *planner) do(v verb, name string) {
	if a := (act{v, name}); !slices.Contains(p.d.acts, a) {
		p.d.acts = append(p.d.acts, a)
	}
}

func (p *planner) tell(kind, reason, action, note string, count func(counter)) {
	p.d.news = append(p.d.news, news{kind, reason, action, note, count})
}

// deleting says whether the SpotInstanceVM itself is being deleted.
func (p *planner) deleting() bool { return p.vm.DeletionTimestamp != nil }

// model of the instances' GPUs: those of spec.gpu, else those of the machine type.
func (p *planner) gpus() int64 {
	if p.vm.Spec.GPU != nil {
		return int64(p.vm.Spec.GPU.Count)
	}
	if p.shape != nil {
		return int64(p.shape.GPUs)
	}
	return 0
}

// mirror takes over what the provider and the node say of an instance.
func (p *planner) mirror(i *instance) {
	if i.State == spotv1alpha1.InstanceDeleting {
		return
	}
	if i.seen != nil && !i.confirmed() && !p.surelyExists(i) {
		return
	}
	if i.seen != nil {
		if !i.confirmed() {
			p.confirm(i)
		}
		i.State = spotv1alpha1.InstanceState(i.seen.State)
		i.InstanceID = cmp.Or(i.seen.ID, i.InstanceID)
		i.InternalIP, i.ExternalIP = i.seen.InternalIP, i.seen.ExternalIP
	}
	if i.node != nil {
		i.NodeName = i.node.Name
		if i.PreemptionNoticeTime != nil && !i.noticed && !i.stopped() { // the notice was withdrawn
			i.PreemptionNoticeTime = nil
		}
	}
	i.JoinedCluster = i.node != nil
}

// surelyExists says whether the provider has granted an instance that it shows: until then it may vanish again for want of
// room, and the operation says why.
func (p *planner) surelyExists(i *instance) bool {
	granted := i.memo.create.settled() && i.memo.create.err == nil
	return granted || i.RequestID == "" || i.seen.State != string(spotv1alpha1.InstanceProvisioning)
}

// confirm notes that an instance exists.
func (p *planner) confirm(i *instance) {
	created := p.now
	if i.seen != nil && !i.seen.Created.IsZero() {
		created = i.seen.Created
	}
	i.CreationTime = &metav1.Time{Time: created}
	i.State = spotv1alpha1.InstanceProvisioning
	if i.seen != nil {
		i.State = spotv1alpha1.InstanceState(i.seen.State)
	}
	i.Message = ""
	// That it exists says nothing of whether it will join, or help the pods that wait.
	if why := p.d.hold.trouble.reason; why != reasons.JoinFailed && why != reasons.PodDoesNotFit {
		p.d.hold = hold{}
	}
	p.tell(corev1.EventTypeNormal, reasons.EventInstanceCreated, "Create",
		"instance "+i.Name+" ("+string(i.ProvisioningModel)+") exists in zone "+i.Zone, nil)
}

// adopt takes in instances that are ours by their labels and that the status does not know: it was lost, or the answer to
// the request that made them.
func (p *planner) adopt() {
	for _, found := range p.strangers {
		if at, ok := p.memo.ended[found.Name]; ok && !found.AsOf.After(at) { // the list is older than its end
			continue
		}
		// The entry has moved on to another zone, and the list is older than that.
		if slices.ContainsFunc(p.instances, func(i *instance) bool { return i.Name == found.Name }) {
			continue
		}
		model := spotv1alpha1.ProvisioningStandard
		if found.Spot {
			model = spotv1alpha1.ProvisioningSpot
		}
		i := p.attach(&instance{
			ProvisionedInstance: spotv1alpha1.ProvisionedInstance{Name: found.Name, Zone: found.Zone, ProvisioningModel: model},
			seen:                &found.Instance, asOf: found.AsOf,
		})
		p.mirror(i)
		p.instances = append(p.instances, i)
		p.tell(corev1.EventTypeWarning, reasons.EventInstanceAdopted, "Adopt",
			"instance "+i.Name+" in zone "+i.Zone+" has the labels of this SpotInstanceVM and was not in its status", nil)
	}
}

// condemn decides that an instance is deleted.
func (p *planner) condemn(i *instance, why string) {
	i.State = spotv1alpha1.InstanceDeleting
	i.Message = why
	p.tell(corev1.EventTypeNormal, reasons.EventInstanceDeleting, "Delete", "instance "+i.Name+" in zone "+i.Zone+" is deleted: "+why, nil)
}

// abandon decides that an entry goes under which nothing exists.
func (p *planner) abandon(i *instance, why string) {
	i.State = spotv1alpha1.InstanceDeleting
	i.Message = why
}

// wait looks again when a request is due.
func (p *planner) wait(r *request) bool {
	if p.now.Before(r.next) {
		p.d.lookAgain(r.next.Sub(p.now))
		return false
	}
	return true
}

// retryable says whether the same request may go through later.
func retryable(err error) bool {
	switch cloud.ClassOf(err) {
	case cloud.Transient, cloud.RateLimited:
		return true
	default:
		return false
	}
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
	p.learn()
	if p.deleting() {
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
	for _, zone := range p.stockouts {
		zonehistory.Stockout(after, zone, p.now)
	}
	p.d.status.Zones = after.Status.Zones
}

// release lets the SpotInstanceVM go when it has no instance, and its zones, listed since its deletion and since the last
// request for an instance, show none. Where nobody can look, the status counts: it knows what was ever asked for.
func (p *planner) release() {
	if len(p.d.status.ProvisionedInstances) > 0 || len(p.strangers) > 0 {
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
