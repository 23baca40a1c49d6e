package spotinstancevm

import (
	"github.com/dcnlab/spot-training-operator/api/reasons"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/cloud"
	"github.com/dcnlab/spot-training-operator/internal/metrics"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
)

// launch asks for an instance whose entry is in the status, and finds out the result of the request.
func (p *planner) launch(i *instance) {
	r := &i.memo.create
	switch {
	case !r.isSent() && p.barred() != "":
		// An earlier process may have sent it, so it is deleted like one that exists.
		p.markForDeletion(i, p.barred())
	case !r.isSent() && !i.used && !i.hasWork() && p.kindOf(i).shape != nil: // without it it is not known what fits
		p.markForDeletion(i, "no pod needs it any more")
	case !r.isSent():
		p.ask(i)
	case !r.isSettled() && r.operation.Name != "":
		if p.isDue(r) {
			p.do(actAwait, i.Name)
		}
	case !r.isSettled():
		p.askAgain(i)
	case r.err == nil:
		p.confirm(i)
		p.do(actRefresh, i.Zone)
		p.join(i)
	case cloud.ClassOf(r.err) == cloud.AlreadyExists:
		p.occupied(i)
	default:
		p.refused(i)
	}
}

// ask sends the request, unless the provider would only refuse it again.
func (p *planner) ask(i *instance) {
	if p.access.exists() {
		return
	}
	if p.d.hold.isActive(p.now, p.vm.Generation) {
		p.d.lookAgain(p.d.hold.until.Sub(p.now))
		return
	}
	p.do(actCreate, i.Name)
}

// askAgain sends a request again whose answer was lost, or that came at a bad time: the request ID is the same, so that
// there will be one instance.
func (p *planner) askAgain(i *instance) {
	r := &i.memo.create
	if r.tries >= 3 && cloud.ClassOf(r.err) == cloud.Transient { // once is nothing to speak of, and many requests at once take their time
		i.Message = short(r.err)
		p.problem = problemOf(r.err, "an instance")
	}
	if why := p.barred(); why != "" {
		p.markForDeletion(i, why)
		return
	}
	if p.isDue(r) {
		p.do(actCreate, i.Name)
	}
}

// occupied deals with a name that is taken: by this very instance, when an earlier answer was lost and the request ID
// forgotten, else by another.
func (p *planner) occupied(i *instance) {
	if i.asOf.After(i.memo.create.settledAt) { // asked for, and it is not ours: else it would be seen
		p.abandon(i, "another instance has this name")
		return
	}
	p.do(actLook, i.Name)
}

// refused tries the next zone, or waits for a while.
func (p *planner) refused(i *instance) {
	r := &i.memo.create
	class := cloud.ClassOf(r.err)
	zone, machineType := i.Zone, p.kindOf(i).name
	p.emit(reporting.Warning(reasons.EventInstanceRefused, "Create",
		"instance %s (%s) was refused in zone %s: %s", i.Name, i.ProvisioningModel, zone, short(r.err)))
	p.count(func(m *metrics.SpotInstances) { m.Refused(zone, machineType, string(class)) })
	if !isCapacityRefusal(r.err) {
		p.problem = problemOf(r.err, "an instance")
		p.d.hold = p.d.hold.extend(p.now, p.vm.Generation, p.problem, 0)
		p.d.lookAgain(p.d.hold.until.Sub(p.now))
		p.abandon(i, short(r.err))
		return
	}
	if class == cloud.Stockout && i.ProvisioningModel != spotv1alpha1.ProvisioningStandard {
		p.stockouts = append(p.stockouts, offer{zone: zone, machineType: machineType})
	}
	where := choose(p.vm, p.kindOf(i), p.exhausted, p.now)
	if where.none || !i.used || p.barred() != "" {
		if where.none && i.used {
			p.exhaustedAll(where)
		}
		p.abandon(i, short(r.err))
		return
	}
	// Under its name nothing exists, so the entry serves for the next try.
	i.Zone, i.ProvisioningModel, i.RequestID = where.zone, where.model, p.newID()
	i.State = spotv1alpha1.InstancePlanned
	i.Message = short(r.err)
	p.d.remember(i.Name, func(m *memo) { m.create = request{} }) // it is another one now
	p.do(actCreate, i.Name)
}
