package spotinstancevm

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/child"
	"github.com/dcnlab/spot-training-operator/internal/cloud"
	"github.com/dcnlab/spot-training-operator/internal/redact"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
)

// problem is what keeps a SpotInstanceVM from working, for its conditions.
type problem struct {
	// reason is one of the condition reasons; empty when there is no problem.
	reason string
	// message says what is wrong and what to do about it.
	message string
	// credentials says that it is about them.
	credentials bool
	// ending says that the Secret with them goes as soon as no instance needs it.
	ending bool
}

func (t problem) exists() bool { return t.reason != "" }

// problemOf explains an error of the provider that stays until a user acts. doing says what was tried.
func problemOf(err error, doing string) problem {
	if setup := (*child.Refusal)(nil); errors.As(err, &setup) { // a mistake in what an instance is to be made from, such as a Secret
		return problem{reason: setup.Reason, message: setup.Message}
	}
	says := func(reason, format string) problem {
		return problem{reason: reason, message: fmt.Sprintf(format, doing, short(err)), credentials: reason == reasons.PermissionDenied}
	}
	switch cloud.ClassOf(err) {
	case cloud.Permission:
		return says(reasons.PermissionDenied, "the provider refused %s: %s: give the service account the role that docs/spot.md names, "+
			"or correct the Secret of the credentials")
	case cloud.Invalid, cloud.NotFound:
		return says(reasons.InvalidSpec, "the provider does not take %s: %s: correct the spec")
	case cloud.Quota:
		return says(reasons.ProviderQuotaExceeded, "%s: %s: have the quota of the project raised, name zones of other regions in "+
			"spec.gcp.zones, or lower spec.maxInstances")
	case cloud.Stockout:
		return says(reasons.ZoneExhausted, "%s: %s: name more zones in spec.gcp.zones, another machine type, or set "+
			"spec.allowStandardFallback")
	default:
		return says(reasons.ProviderUnavailable, "%s: %s: it is tried again; nothing needs to be done unless this stays")
	}
}

// longestText of a provider's error in a condition.
const longestText = 512

// short is the text of an error, cut where it gets too long for a status; nothing for none.
func short(err error) string {
	if err == nil {
		return ""
	}
	text := []rune(err.Error())
	if len(text) > longestText {
		return string(text[:longestText]) + "..."
	}
	return string(text)
}

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
	set(reasons.ConditionAllowed, p.allowedCondition())
	set(reasons.ConditionCredentialsValid, p.credentialsCondition())
	set(reasons.ConditionCapacityAvailable, capacity)
	set(reasons.ConditionReady, p.readyCondition(capacity))
}

func (p *planner) worst() problem {
	for _, t := range []problem{p.forbidden, p.access, p.listing, p.shapeless, p.problem} {
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
	case p.forbidden.exists():
		return p.forbidden.condition()
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
	pod, room := &p.packing.TooLarge[0], p.room(p.kind)
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
			"the requests of the job", pod.Name, p.kind.name, strings.Join(lacks, ", "))}
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
