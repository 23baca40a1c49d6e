package queueing

import (
	"context"

	schedulingv1 "k8s.io/api/scheduling/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// +kubebuilder:rbac:groups=scheduling.k8s.io,resources=priorityclasses,verbs=list;watch

// PriorityClasses returns what tells the value of a PriorityClass, which never changes; false when there is none of the name.
// The reader is a cache.
func PriorityClasses(reader client.Reader) func(name string) (int32, bool) {
	return func(name string) (int32, bool) {
		var class schedulingv1.PriorityClass
		if err := reader.Get(context.Background(), client.ObjectKey{Name: name}, &class); err != nil {
			return 0, false
		}
		return class.Value, true
	}
}
