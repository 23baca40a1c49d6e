package nodenotice

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// Trim is the transform of Nodes in the manager's cache. It keeps what the controllers read: metadata, taints, whether
// the node is cordoned, the provider's ID, conditions without their heartbeats, allocatable and addresses. Lists of
// images and of volumes, the most of a Node, are left out.
func Trim(object any) (any, error) {
	node, ok := object.(*corev1.Node)
	if _, gone := object.(cache.DeletedFinalStateUnknown); gone {
		return object, nil
	} else if !ok {
		return nil, fmt.Errorf("transform of nodes in the cache: %T is no node", object)
	}
	trimmed := &corev1.Node{
		TypeMeta: node.TypeMeta, ObjectMeta: node.ObjectMeta,
		Spec: corev1.NodeSpec{ProviderID: node.Spec.ProviderID, Taints: node.Spec.Taints, Unschedulable: node.Spec.Unschedulable},
		Status: corev1.NodeStatus{
			Allocatable: node.Status.Allocatable, Addresses: node.Status.Addresses, Conditions: node.Status.Conditions,
		},
	}
	trimmed.ManagedFields = nil
	for i := range trimmed.Status.Conditions {
		trimmed.Status.Conditions[i].LastHeartbeatTime = metav1.Time{}
	}
	return trimmed, nil
}

// NoticeChanged lets the events of Nodes through with which a notice came, changed or was withdrawn: what a controller
// that acts on notices watches.
func NoticeChanged() predicate.Predicate {
	changed := predicate.NewPredicateFuncs(func(object client.Object) bool {
		_, ok := noticeOf(object)
		return ok
	})
	changed.GenericFunc = func(event.GenericEvent) bool { return false }
	changed.UpdateFunc = func(e event.UpdateEvent) bool {
		before, hadOne := noticeOf(e.ObjectOld)
		after, hasOne := noticeOf(e.ObjectNew)
		return hadOne != hasOne || !isSame(before, after)
	}
	return changed
}

// noticeOf reads all nodes as of the same time, so that notices which tell no time compare equal.
func noticeOf(object client.Object) (Notice, bool) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return Notice{}, false
	}
	return FromNode(node, time.Time{})
}

func isSame(a, b Notice) bool {
	return a.Source == b.Source && a.Detail == b.Detail && a.Time.Equal(b.Time) && a.Deadline.Equal(b.Deadline)
}
