package trainingjob

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// rangeWarnings reports LimitRanges that keep the workers' pods or the claim from being created.
func rangeWarnings(pod corev1.PodSpec, claim *corev1.PersistentVolumeClaim, ranges []corev1.LimitRange) []string {
	var list []string
	for _, limits := range ranges {
		for _, item := range limits.Spec.Limits {
			switch item.Type {
			case corev1.LimitTypeContainer:
				for _, container := range slices.Concat(pod.InitContainers, pod.Containers) {
					list = append(list, outside(limits.Name, "container", "the worker", item, container.Resources.Requests, container.Resources.Limits)...)
				}
			case corev1.LimitTypePod:
				list = append(list, outside(limits.Name, "pod", "the worker", item, podRequests(pod), podLimits(pod))...)
			case corev1.LimitTypePersistentVolumeClaim:
				if claim == nil {
					continue
				}
				size := claim.Spec.Resources.Requests
				list = append(list, outside(limits.Name, "claim", "the new claim", item, size, size)...)
			}
		}
	}
	return list
}

// outside tells what lies above the maximum or below the minimum of one item of a LimitRange.
func outside(name, per, who string, item corev1.LimitRangeItem, requests, limits corev1.ResourceList) []string {
	var list []string
	tell := func(of corev1.ResourceName, amount resource.Quantity, bound resource.Quantity, relation, remedy string) {
		list = append(list, fmt.Sprintf("%s: %s asks for %s of %s, but LimitRange %s allows at %s %s for each %s, so that the API server refuses it: %s, or change the LimitRange",
			rangeField(item.Type, of), who, amount.String(), of, name, relation, bound.String(), per, remedy))
	}
	for _, of := range slices.Sorted(maps.Keys(item.Max)) {
		most := item.Max[of]
		for _, amounts := range []corev1.ResourceList{limits, requests} {
			if amount, set := amounts[of]; set && amount.Cmp(most) > 0 {
				tell(of, amount, most, "most", "ask for less")
				break
			}
		}
	}
	for _, of := range slices.Sorted(maps.Keys(item.Min)) {
		least := item.Min[of]
		if amount, set := requests[of]; set && amount.Cmp(least) < 0 {
			tell(of, amount, least, "least", "ask for more")
		}
	}
	return list
}

func rangeField(kind corev1.LimitType, of corev1.ResourceName) string {
	switch {
	case kind == corev1.LimitTypePersistentVolumeClaim:
		return "spec.checkpoint.storage.size"
	case of == "nvidia.com/gpu":
		return "spec.gpusPerWorker"
	}
	return "spec.resources"
}
