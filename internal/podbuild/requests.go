package podbuild

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"

	"github.com/dcnlab/spot-training-operator/api/podtemplate"
	"github.com/dcnlab/spot-training-operator/internal/source"
)

// Requests are what a pod requests whose program has these resources, with the container that fetches its code and the init containers
// and sidecars of the settings, as kube-scheduler counts them.
func Requests(settings *podtemplate.Settings, code *podtemplate.Source, program corev1.ResourceRequirements) corev1.ResourceList {
	spec := &corev1.PodSpec{Containers: []corev1.Container{{Resources: program}}, InitContainers: CountedInitContainers(settings, code, program)}
	return resource.PodRequests(&corev1.Pod{Spec: *LimitsAsRequests(spec)}, resource.PodResourcesOptions{})
}

// CountedInitContainers are those whose resources count with the program's: that which fetches its code, and those of the settings.
func CountedInitContainers(settings *podtemplate.Settings, code *podtemplate.Source, program corev1.ResourceRequirements) []corev1.Container {
	if code == nil {
		return InitContainers(settings)
	}
	return slices.Concat([]corev1.Container{{Name: source.Container, Resources: OperatorResources(program)}}, InitContainers(settings))
}

// LimitsAsRequests has limits stand for requests that are not set, as the API server does when the pod is created. Amounts below 0
// are left out, and of the containers all else.
func LimitsAsRequests(spec *corev1.PodSpec) *corev1.PodSpec {
	filled := *spec
	fill := func(containers []corev1.Container) []corev1.Container {
		var all []corev1.Container
		for i := range containers {
			c := corev1.Container{RestartPolicy: containers[i].RestartPolicy}
			c.Resources.Requests = corev1.ResourceList{}
			for _, list := range []corev1.ResourceList{containers[i].Resources.Limits, containers[i].Resources.Requests} {
				for name, quantity := range list {
					if quantity.Sign() >= 0 {
						c.Resources.Requests[name] = quantity
					}
				}
			}
			all = append(all, c)
		}
		return all
	}
	filled.Containers, filled.InitContainers = fill(spec.Containers), fill(spec.InitContainers)
	return &filled
}
