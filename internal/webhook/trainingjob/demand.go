package trainingjob

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// withDefaults is the pod as it will be once the API server and the LimitRanges of the namespace have filled in what
// its containers leave open.
func withDefaults(spec corev1.PodSpec, ranges []corev1.LimitRange) corev1.PodSpec {
	spec = *spec.DeepCopy()
	for _, containers := range [][]corev1.Container{spec.Containers, spec.InitContainers} {
		for i := range containers {
			resources := &containers[i].Resources
			resources.Requests = merged(resources.Requests, resources.Limits) // a limit alone is the request too
			for _, item := range items(ranges, corev1.LimitTypeContainer) {
				resources.Limits = merged(resources.Limits, item.Default)
				resources.Requests = merged(resources.Requests, item.DefaultRequest)
			}
		}
	}
	return spec
}

// merged is a list with what another has and it has not.
func merged(list, with corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	maps.Copy(out, with)
	maps.Copy(out, list)
	return out
}

func items(ranges []corev1.LimitRange, kind corev1.LimitType) []corev1.LimitRangeItem {
	var list []corev1.LimitRangeItem
	for _, limits := range ranges {
		for _, item := range limits.Spec.Limits {
			if item.Type == kind {
				list = append(list, item)
			}
		}
	}
	return list
}

func podRequests(spec corev1.PodSpec) corev1.ResourceList {
	return resourcehelper.PodRequests(&corev1.Pod{Spec: spec}, resourcehelper.PodResourcesOptions{})
}

func podLimits(spec corev1.PodSpec) corev1.ResourceList {
	return resourcehelper.PodLimits(&corev1.Pod{Spec: spec}, resourcehelper.PodResourcesOptions{})
}

// demand is what a job asks of its namespace in all, under the names that ResourceQuotas use.
type demand struct {
	job     *mlv1.TrainingJob
	pod     corev1.PodSpec
	workers int64
	// ofPods is what quotas with scopes count too.
	ofPods corev1.ResourceList
	// ofObjects is what only quotas without scopes count.
	ofObjects corev1.ResourceList
}

func demandOf(job *mlv1.TrainingJob, pod corev1.PodSpec, children []client.Object) demand {
	d := demand{job: job, pod: pod, workers: int64(job.Spec.NumWorkers), ofPods: corev1.ResourceList{}, ofObjects: corev1.ResourceList{}}
	for name, quantity := range podRequests(pod) {
		quantity.Mul(d.workers)
		d.ofPods["requests."+name] = quantity
		if name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage ||
			strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
			d.ofPods[name] = quantity // the short name means the requests
		}
	}
	for name, quantity := range podLimits(pod) {
		quantity.Mul(d.workers)
		d.ofPods["limits."+name] = quantity
	}
	pods := *resource.NewQuantity(d.workers, resource.DecimalSI)
	d.ofPods[corev1.ResourcePods] = pods
	d.ofObjects["count/pods"] = pods
	for _, child := range children {
		d.count(child)
	}
	return d
}

func (d demand) count(child client.Object) {
	add := func(quantity resource.Quantity, names ...corev1.ResourceName) {
		for _, name := range names {
			sum := d.ofObjects[name]
			sum.Add(quantity)
			d.ofObjects[name] = sum
		}
	}
	one := *resource.NewQuantity(1, resource.DecimalSI)
	switch c := child.(type) {
	case *corev1.Service:
		add(one, corev1.ResourceServices, "count/services")
	case *corev1.ConfigMap:
		add(one, corev1.ResourceConfigMaps, "count/configmaps")
	case *corev1.ServiceAccount:
		add(one, "count/serviceaccounts")
	case *corev1.PersistentVolumeClaim:
		size := c.Spec.Resources.Requests[corev1.ResourceStorage]
		add(one, corev1.ResourcePersistentVolumeClaims, "count/persistentvolumeclaims")
		add(size, corev1.ResourceRequestsStorage)
		if class := c.Spec.StorageClassName; class != nil && *class != "" {
			prefix := corev1.ResourceName(*class + ".storageclass.storage.k8s.io/")
			add(one, prefix+corev1.ResourcePersistentVolumeClaims)
			add(size, prefix+corev1.ResourceRequestsStorage)
		}
	default:
		add(one, "count/jobs.batch")
	}
}
