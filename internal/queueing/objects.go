package queueing

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/nodenotice"
	"github.com/dcnlab/spot-training-operator/internal/queueing/scheduler"
)

// nodeOf is a node for the scheduler, without what is requested there.
func nodeOf(n *corev1.Node) scheduler.Node {
	return scheduler.Node{
		Name: n.Name, Labels: n.Labels, Taints: n.Spec.Taints, Created: n.CreationTimestamp.Time,
		Ready: takesPods(n), Allocatable: resourcesOf(n.Status.Allocatable),
	}
}

// takesPods says whether anything may be placed on a node: it is ready, not cordoned, and does not go away.
func takesPods(n *corev1.Node) bool {
	if n.DeletionTimestamp != nil || n.Spec.Unschedulable {
		return false
	}
	if slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == spotv1alpha1.TaintPreemption }) {
		return false
	}
	if _, goes := nodenotice.FromNode(n, time.Time{}); goes {
		return false
	}
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// Selector is a selector of the API in plain strings; nil when it is empty.
func Selector[V ~string](of map[string]V) map[string]string {
	if len(of) == 0 {
		return nil
	}
	selector := make(map[string]string, len(of))
	for key, value := range of {
		selector[key] = string(value)
	}
	return selector
}
