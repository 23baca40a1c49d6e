package trainingjob

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// quotaWarnings reports quotas that could not admit the job even if nothing else ran in the namespace.
func quotaWarnings(job *mlv1.TrainingJob, d demand, quotas []corev1.ResourceQuota) []string {
	var list []string
	for _, quota := range quotas {
		scoped := scopesOf(quota)
		if slices.ContainsFunc(scoped, func(scope corev1.ScopedResourceSelectorRequirement) bool { return !matches(scope, d.pod) }) {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(quota.Spec.Hard)) {
			hard := quota.Spec.Hard[name]
			if unset := unsetFor(d.pod, name); unset != "" {
				list = append(list, fmt.Sprintf("spec.resources.%s: is not set, but ResourceQuota %s counts %s, so that the API server refuses "+
					"the workers' pods: set it, or give the namespace a LimitRange with defaults", unset, quota.Name, name))
				continue
			}
			need, asked := d.ofPods[name]
			if !asked && len(scoped) == 0 {
				need, asked = d.ofObjects[name]
			}
			if asked && need.Cmp(hard) > 0 {
				list = append(list, fmt.Sprintf("%s: the job needs %s of %s in all, but ResourceQuota %s allows %s, so that it can never run: %s",
					fieldOf(job, name), need.String(), name, quota.Name, hard.String(), "ask for less, or raise the quota"))
			}
		}
	}
	return list
}

// unsetFor is the part of spec.resources, such as limits.cpu, that a quota on a resource makes mandatory and that a
// container lacks; empty when there is none.
func unsetFor(pod corev1.PodSpec, name corev1.ResourceName) string {
	resource, ofLimits := strings.CutPrefix(string(name), "limits.")
	resource = strings.TrimPrefix(resource, "requests.")
	if resource != string(corev1.ResourceCPU) && resource != string(corev1.ResourceMemory) {
		return ""
	}
	for _, container := range slices.Concat(pod.InitContainers, pod.Containers) {
		list, part := container.Resources.Requests, "requests."
		if ofLimits {
			list, part = container.Resources.Limits, "limits."
		}
		if _, set := list[corev1.ResourceName(resource)]; !set {
			return part + resource
		}
	}
	return ""
}

// fieldOf is the field that a resource is asked for with.
func fieldOf(job *mlv1.TrainingJob, name corev1.ResourceName) string {
	text := strings.TrimPrefix(strings.TrimPrefix(string(name), "requests."), "limits.")
	switch {
	case text == "nvidia.com/gpu":
		return "spec.gpusPerWorker"
	case name == corev1.ResourceRequestsStorage, strings.HasSuffix(string(name), "/requests.storage"):
		return "spec.checkpoint.storage.size"
	case name == corev1.ResourcePods, name == "count/pods":
		return "spec.numWorkers"
	case text == "cpu", text == "memory", text == "ephemeral-storage", strings.HasPrefix(text, corev1.ResourceHugePagesPrefix):
		return "spec.resources"
	case strings.Contains(text, "persistentvolumeclaims"):
		return "spec.checkpoint.storage.claimName"
	case job.Spec.Resources != nil:
		_, limited := job.Spec.Resources.Limits[corev1.ResourceName(text)]
		_, requested := job.Spec.Resources.Requests[corev1.ResourceName(text)]
		if limited || requested {
			return "spec.resources"
		}
	}
	if strings.Contains(text, "/") && !strings.HasPrefix(text, "count/") {
		return "spec.networking.rdmaResource"
	}
	return "metadata.namespace"
}

// scopesOf are the scopes of a quota in one form.
func scopesOf(quota corev1.ResourceQuota) []corev1.ScopedResourceSelectorRequirement {
	var list []corev1.ScopedResourceSelectorRequirement
	for _, scope := range quota.Spec.Scopes {
		list = append(list, corev1.ScopedResourceSelectorRequirement{ScopeName: scope, Operator: corev1.ScopeSelectorOpExists})
	}
	if quota.Spec.ScopeSelector != nil {
		list = append(list, quota.Spec.ScopeSelector.MatchExpressions...)
	}
	return list
}

// matches says whether a quota with this scope counts the workers' pods for sure.
func matches(scope corev1.ScopedResourceSelectorRequirement, pod corev1.PodSpec) bool {
	switch scope.ScopeName {
	case corev1.ResourceQuotaScopeTerminating: // pods with a deadline of their own, which workers do not have
		return pod.ActiveDeadlineSeconds != nil
	case corev1.ResourceQuotaScopeNotTerminating:
		return pod.ActiveDeadlineSeconds == nil
	case corev1.ResourceQuotaScopeBestEffort:
		return isBestEffort(pod)
	case corev1.ResourceQuotaScopeNotBestEffort:
		return !isBestEffort(pod)
	case corev1.ResourceQuotaScopePriorityClass:
		class := pod.PriorityClassName
		if class == "" { // the cluster may have a default class
			return false
		}
		switch scope.Operator {
		case corev1.ScopeSelectorOpExists:
			return true
		case corev1.ScopeSelectorOpIn:
			return slices.Contains(scope.Values, class)
		case corev1.ScopeSelectorOpNotIn:
			return !slices.Contains(scope.Values, class)
		}
	}
	return false
}

// isBestEffort says whether no container of a pod asks for CPU or memory.
func isBestEffort(pod corev1.PodSpec) bool {
	requests, limits := podRequests(pod), podLimits(pod)
	return requests.Cpu().IsZero() && requests.Memory().IsZero() && limits.Cpu().IsZero() && limits.Memory().IsZero()
}
