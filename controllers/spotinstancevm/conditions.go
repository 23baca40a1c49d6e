package spotinstancevm

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dcnlab/spot-training-operator/api/reasons"
)

// verdict is what one condition is to say.
type verdict struct {
	status          metav1.ConditionStatus
	reason, message string
}

func (t trouble) verdict() verdict { return verdict{metav1.ConditionFalse, t.reason, t.message} }

// conditions says in what state the SpotInstanceVM is, and what can be done about it.
func (p *planner) conditions() {
	capacity := p.capacityVerdict()
	for _, c := range []struct {
		kind string
		is   verdict
	}{
		{reasons.ConditionCredentialsValid, p.credentialsVerdict()},
		{reasons.ConditionCapacityAvailable, capacity},
		{reasons.ConditionReady, p.readyVerdict(capacity)},
	} {
		meta.SetStatusCondition(&p.d.status.Conditions, metav1.Condition{
			Type: c.kind, Status: c.is.status, Reason: c.is.reason, Message: c.is.message,
			ObservedGeneration: p.vm.Generation, LastTransitionTime: metav1.NewTime(p.now),
		})
	}
}

// worst is the trouble that stands in the way of all else.
func (p *planner) worst() trouble {
	for _, t := range []trouble{p.access, p.listing, p.shapeless, p.trouble} {
		if t.is() {
			return t
		}
	}
	// Without pods that wait nobody will find out whether it is still so.
	if p.d.hold.holds(p.now, p.vm.Generation) || (p.d.hold.generation == p.vm.Generation && len(p.demand) > 0) {
		return p.d.hold.trouble
	}
	return trouble{}
}

func (p *planner) credentialsVerdict() verdict {
	for _, t := range []trouble{p.access, p.listing, p.shapeless, p.trouble, p.d.hold.trouble} {
		if t.is() && t.credentials {
			return t.verdict()
		}
	}
	for _, began := range p.listed {
		if !began.IsZero() {
			return verdict{metav1.ConditionTrue, reasons.Ready, "the provider accepts the credentials"}
		}
	}
	return verdict{metav1.ConditionUnknown, reasons.Provisioning, "the provider has not been asked yet"}
}

func (p *planner) capacityVerdict() verdict {
	switch {
	case p.none != nil:
		t := troubleOf(p.none.err, "the last instance")
		t.message += fmt.Sprintf("; asked again at %s", p.none.until.UTC().Format(time.RFC3339))
		return t.verdict()
	case len(p.packing.TooLarge) > 0 && p.shapeless.is():
		return p.shapeless.verdict()
	case len(p.packing.TooLarge) > 0:
		return p.tooLarge()
	case len(p.packing.Misfits) > 0:
		return misfit(p.packing.Misfits[0].Name).verdict()
	case p.crowded:
		return verdict{metav1.ConditionFalse, reasons.MaxInstancesReached, fmt.Sprintf(
			"pods wait for room, and spec.maxInstances (%d) are in use: raise it, or wait until a job ends", p.most())}
	case p.short != nil:
		return p.short.verdict(p.most())
	}
	asked, joining := 0, 0
	for _, i := range p.instances {
		switch {
		case i.dropped:
		case i.phase() == phaseLaunch:
			asked++
		case i.phase() == phaseJoin:
			joining++
		}
	}
	switch {
	case asked > 0:
		return verdict{metav1.ConditionUnknown, reasons.Provisioning, "an instance has been asked for"}
	case len(p.demand) > 0 && p.d.hold.trouble.is() && p.d.hold.holds(p.now, p.vm.Generation):
		return p.d.hold.trouble.verdict()
	case joining > 0:
		return verdict{metav1.ConditionTrue, reasons.Provisioning, "instances are joining the cluster"}
	default:
		return verdict{metav1.ConditionTrue, reasons.Ready, "the instances that were asked for were granted"}
	}
}

func (p *planner) tooLarge() verdict {
	pod, room := &p.packing.TooLarge[0], p.room()
	var lacks []string
	for _, r := range []struct {
		name        string
		needs, room int64
	}{
		{"GPUs", pod.Needs.GPUs, room.GPUs}, {"thousandths of a CPU", pod.Needs.MilliCPU, room.MilliCPU},
		{"bytes of memory", pod.Needs.Memory, room.Memory},
	} {
		if r.needs > r.room {
			lacks = append(lacks, fmt.Sprintf("%d %s of %d", r.needs, r.name, r.room))
		}
	}
	return verdict{metav1.ConditionFalse, reasons.PodDoesNotFit, fmt.Sprintf(
		"pod %s requests more than an instance of type %s has for pods (%s): choose a larger spec.gcp.machineType or spec.gpu.count, or lower "+
			"the requests of the job", pod.Name, p.vm.Spec.GCP.MachineType, strings.Join(lacks, ", "))}
}

func (p *planner) readyVerdict(capacity verdict) verdict {
	switch worst := p.worst(); {
	case worst.is():
		return worst.verdict()
	case p.deleting():
		return verdict{metav1.ConditionFalse, reasons.Deleting, "the instances are being deleted"}
	case p.none != nil:
		return capacity
	case capacity.reason == reasons.Provisioning:
		return verdict{metav1.ConditionTrue, reasons.Provisioning, capacity.message}
	default:
		return verdict{metav1.ConditionTrue, reasons.Ready, "instances are created as pods need them"}
	}
}
