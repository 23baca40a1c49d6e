package spotinstancevm

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/redact"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
)

type conditionValue struct {
	status          metav1.ConditionStatus
	reason, message string
}

func (t problem) condition() conditionValue {
	return conditionValue{metav1.ConditionFalse, t.reason, t.message}
}

// conditions says in what state the SpotInstanceVM is, and what can be done about it.
func (p *planner) conditions() {
	capacity := p.capacityCondition()
	set := func(kind string, is conditionValue) {
		reporting.Set(&p.d.status.Conditions, p.vm.Generation, p.now, kind, is.status, is.reason, redact.Text(is.message))
	}
	set(reasons.ConditionCredentialsValid, p.credentialsCondition())
	set(reasons.ConditionCapacityAvailable, capacity)
	set(reasons.ConditionReady, p.readyCondition(capacity))
}

func (p *planner) worst() problem {
	for _, t := range []problem{p.access, p.listing, p.shapeless, p.problem} {
		if t.exists() {
			return t
		}
	}
	// Without pods that wait it is not found out whether it is still so.
	if p.d.hold.isActive(p.now, p.vm.Generation) || (p.d.hold.generation == p.vm.Generation && len(p.demand) > 0) {
		return p.d.hold.problem
	}
	return problem{}
}

func (p *planner) credentialsCondition() conditionValue {
	for _, t := range []problem{p.access, p.listing, p.shapeless, p.problem, p.d.hold.problem} {
		if t.exists() && t.credentials {
			return t.condition()
		}
	}
	for _, began := range p.listed {
		if !began.IsZero() {
			return conditionValue{metav1.ConditionTrue, reasons.Ready, "the provider accepts the credentials"}
		}
	}
	return conditionValue{metav1.ConditionUnknown, reasons.Provisioning, "the provider has not been asked yet"}
}

func (p *planner) capacityCondition() conditionValue {
	switch {
	case p.none != nil:
		t := problemOf(p.none.err, "the last instance")
		t.message += fmt.Sprintf("; asked again at %s", p.none.until.UTC().Format(time.RFC3339))
		return t.condition()
	case len(p.packing.TooLarge) > 0 && p.shapeless.exists():
		return p.shapeless.condition()
	case len(p.packing.TooLarge) > 0:
		return p.tooLarge()
	case len(p.packing.Unexplained) > 0:
		return unscheduledProblem(p.packing.Unexplained[0].Name).condition()
	case p.atMaxInstances:
		return conditionValue{metav1.ConditionFalse, reasons.MaxInstancesReached, fmt.Sprintf(
			"pods wait for instances, and spec.maxInstances (%d) is reached: raise it, or wait until a job ends", p.most())}
	case p.short != nil:
		return p.short.condition(p.most())
	}
	isAny := func(in phase) bool {
		return slices.ContainsFunc(p.instances, func(i *instance) bool { return !i.dropped && i.phase() == in })
	}
	switch {
	case isAny(phaseLaunch):
		return conditionValue{metav1.ConditionUnknown, reasons.Provisioning, "an instance has been asked for"}
	case len(p.demand) > 0 && p.d.hold.problem.exists() && p.d.hold.isActive(p.now, p.vm.Generation):
		return p.d.hold.problem.condition()
	case isAny(phaseJoin):
		return conditionValue{metav1.ConditionTrue, reasons.Provisioning, "instances are joining the cluster"}
	default:
		return conditionValue{metav1.ConditionTrue, reasons.Ready, "the instances that were asked for were granted"}
	}
}

func (p *planner) tooLarge() conditionValue {
	pod, room := &p.packing.TooLarge[0], p.room()
	var lacks []string
	for _, r := range []struct {
		name        string
		needs, room *resource.Quantity
	}{
		{"GPUs", resource.NewQuantity(pod.Needs.GPUs, resource.DecimalSI), resource.NewQuantity(room.GPUs, resource.DecimalSI)},
		{"cpu", resource.NewMilliQuantity(pod.Needs.MilliCPU, resource.DecimalSI), resource.NewMilliQuantity(room.MilliCPU, resource.DecimalSI)},
		{"memory", resource.NewQuantity(pod.Needs.Memory, resource.BinarySI), resource.NewQuantity(room.Memory, resource.BinarySI)},
	} {
		if r.needs.Cmp(*r.room) > 0 {
			lacks = append(lacks, fmt.Sprintf("%s: requested %s, available %s", r.name, r.needs, r.room))
		}
	}
	return conditionValue{metav1.ConditionFalse, reasons.PodDoesNotFit, fmt.Sprintf(
		"pod %s requests more than an instance of type %s has for pods (%s): choose a larger spec.gcp.machineType or spec.gpu.count, or lower "+
			"the requests of the job", pod.Name, p.vm.Spec.GCP.MachineType, strings.Join(lacks, ", "))}
}

func (p *planner) readyCondition(capacity conditionValue) conditionValue {
	switch worst := p.worst(); {
	case worst.exists():
		return worst.condition()
	case p.isDeleting():
		return conditionValue{metav1.ConditionFalse, reasons.Deleting, "the instances are being deleted"}
	case p.none != nil:
		return capacity
	case capacity.reason == reasons.Provisioning:
		return conditionValue{metav1.ConditionTrue, reasons.Provisioning, capacity.message}
	default:
		return conditionValue{metav1.ConditionTrue, reasons.Ready, "instances are created as pods need them"}
	}
}
