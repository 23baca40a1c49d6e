package capacity

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/resource"
)

// GPU is the resource that stands for the GPUs of a node.
const GPU corev1.ResourceName = "nvidia.com/gpu"

// Of reads what there is of the resources that count.
func Of(list corev1.ResourceList) Resources {
	gpus := list[GPU]
	return Resources{MilliCPU: list.Cpu().MilliValue(), Memory: list.Memory().Value(), GPUs: gpus.Value()}
}

// Requests of a pod, as the scheduler counts them.
func Requests(pod *corev1.Pod) Resources {
	return Of(resource.PodRequests(pod, resource.PodResourcesOptions{}))
}

// Bare is the spec of a pod with nothing but the node that it is on and what its requests are made of, for a cache.
func Bare(spec *corev1.PodSpec) corev1.PodSpec {
	return corev1.PodSpec{
		NodeName: spec.NodeName, Overhead: spec.Overhead, Resources: spec.Resources,
		InitContainers: bareContainers(spec.InitContainers), Containers: bareContainers(spec.Containers),
	}
}

func bareContainers(containers []corev1.Container) []corev1.Container {
	var bare []corev1.Container
	for i := range containers {
		bare = append(bare, corev1.Container{
			Name: containers[i].Name, RestartPolicy: containers[i].RestartPolicy,
			Resources: corev1.ResourceRequirements{Requests: containers[i].Resources.Requests},
		})
	}
	return bare
}

// Apart reads which pods a pod must not share a node with. Affinity that is only preferred, and terms for other
// namespaces, are left to the scheduler.
func Apart(pod *corev1.Pod) []labels.Selector {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAntiAffinity == nil {
		return nil
	}
	var all []labels.Selector
	for _, term := range pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
		if term.TopologyKey != corev1.LabelHostname {
			continue
		}
		if selector, err := metav1.LabelSelectorAsSelector(term.LabelSelector); err == nil {
			all = append(all, selector)
		}
	}
	return all
}
