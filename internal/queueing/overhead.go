package queueing

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// +kubebuilder:rbac:groups=node.k8s.io,resources=runtimeclasses,verbs=list;watch

// Overheads tell what the sandbox of a RuntimeClass takes beside the containers of a pod. It is nil where there are none.
type Overheads func(class string) corev1.ResourceList

// RuntimeClasses are the overheads of the cluster's. The reader is a cache, which is filled when the first job names a class.
func RuntimeClasses(reader client.Reader) Overheads {
	return func(name string) corev1.ResourceList {
		var class nodev1.RuntimeClass
		if err := reader.Get(context.Background(), client.ObjectKey{Name: name}, &class); err != nil || class.Overhead == nil {
			return nil // the API server refuses pods of a class that does not exist
		}
		return class.Overhead.PodFixed
	}
}

// AddTo has a pod that is to be created carry the overhead of its class, as the API server will write it.
func (o Overheads) AddTo(pod *corev1.PodSpec) {
	if o != nil && pod.RuntimeClassName != nil {
		pod.Overhead = o(*pod.RuntimeClassName)
	}
}
