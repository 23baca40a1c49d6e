package queueing

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"

	"github.com/dcnlab/spot-training-operator/internal/capacity"
	"github.com/dcnlab/spot-training-operator/internal/podbuild"
	"github.com/dcnlab/spot-training-operator/internal/queueing/scheduler"
)

// resourcesOf reads the amounts of a list as the scheduler counts them. Those below 0 are left out: no pod can have such requests, but the
// template of one may, and it would make room that is not there.
func resourcesOf(list corev1.ResourceList) scheduler.Resources {
	var r scheduler.Resources
	for name, quantity := range list {
		if quantity.Sign() < 0 {
			continue
		}
		switch name {
		case corev1.ResourceCPU:
			r.MilliCPU = quantity.MilliValue()
		case corev1.ResourceMemory:
			r.Memory = quantity.Value()
		case corev1.ResourceEphemeralStorage:
			r.EphemeralStorage = quantity.Value()
		case corev1.ResourcePods:
			r.Pods = quantity.Value()
		case capacity.GPU:
			r.GPUs = quantity.Value()
		default:
			if r.Extended == nil {
				r.Extended = map[corev1.ResourceName]int64{}
			}
			r.Extended[name] = quantity.Value()
		}
	}
	return r
}

// RequestsOf a pod, as the kube-scheduler counts them, the place of the pod itself included. A Source gives them as the needs
// of a member.
func RequestsOf(spec *corev1.PodSpec) scheduler.Resources {
	r := resourcesOf(resource.PodRequests(&corev1.Pod{Spec: *podbuild.LimitsAsRequests(spec)}, resource.PodResourcesOptions{}))
	r.Pods = 1
	return r
}

// plus adds times b to a. Neither is changed.
func plus(a, b scheduler.Resources, times int64) scheduler.Resources {
	sum := scheduler.Resources{
		MilliCPU: a.MilliCPU + times*b.MilliCPU, Memory: a.Memory + times*b.Memory,
		EphemeralStorage: a.EphemeralStorage + times*b.EphemeralStorage,
		GPUs:             a.GPUs + times*b.GPUs, Pods: a.Pods + times*b.Pods, Extended: a.Extended,
	}
	if len(b.Extended) == 0 {
		return sum
	}
	sum.Extended = maps.Clone(a.Extended)
	if sum.Extended == nil {
		sum.Extended = make(map[corev1.ResourceName]int64, len(b.Extended))
	}
	for name, amount := range b.Extended {
		if sum.Extended[name] += times * amount; sum.Extended[name] == 0 {
			delete(sum.Extended, name)
		}
	}
	if len(sum.Extended) == 0 {
		sum.Extended = nil
	}
	return sum
}

// atMost is the lesser of each amount.
func atMost(a, b scheduler.Resources) scheduler.Resources {
	least := scheduler.Resources{
		MilliCPU: min(a.MilliCPU, b.MilliCPU), Memory: min(a.Memory, b.Memory),
		EphemeralStorage: min(a.EphemeralStorage, b.EphemeralStorage), GPUs: min(a.GPUs, b.GPUs), Pods: min(a.Pods, b.Pods),
	}
	for name, amount := range a.Extended {
		if amount = min(amount, b.Extended[name]); amount > 0 {
			if least.Extended == nil {
				least.Extended = map[corev1.ResourceName]int64{}
			}
			least.Extended[name] = amount
		}
	}
	return least
}
