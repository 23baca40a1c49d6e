package queueing

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// +kubebuilder:rbac:groups=node.k8s.io,resources=runtimeclasses,verbs=get

// Overheads tell what the sandbox of a RuntimeClass takes beside the containers of a pod. It is nil where there are none.
type Overheads func(class string) corev1.ResourceList

const (
	// overheadsKnown is how long what a RuntimeClass takes is taken for known, and overheadsLimit how long to wait for the answer.
	overheadsKnown = time.Minute
	overheadsLimit = 5 * time.Second
)

// RuntimeClasses are the overheads of the cluster's, which few jobs ask for: they are read from the API server.
func RuntimeClasses(reader client.Reader) Overheads {
	known := cache.NewExpiring()
	return func(name string) corev1.ResourceList {
		if found, ok := known.Get(name); ok {
			return found.(corev1.ResourceList)
		}
		ctx, cancel := context.WithTimeout(context.Background(), overheadsLimit)
		defer cancel()
		var class nodev1.RuntimeClass
		var takes corev1.ResourceList
		err := reader.Get(ctx, client.ObjectKey{Name: name}, &class)
		if err == nil && class.Overhead != nil {
			takes = class.Overhead.PodFixed
		}
		if client.IgnoreNotFound(err) == nil { // the API server refuses pods of a class that does not exist
			known.Set(name, takes, overheadsKnown)
		}
		return takes
	}
}

// AddTo has a pod that is to be created carry the overhead of its class, as the API server will write it.
func (o Overheads) AddTo(pod *corev1.PodSpec) {
	if o != nil && pod.RuntimeClassName != nil {
		pod.Overhead = o(*pod.RuntimeClassName)
	}
}
