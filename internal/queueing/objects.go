package queueing

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
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

// queueOf is a queue for the scheduler.
func queueOf(q *aiplatformv1alpha1.AIJobQueue) scheduler.Queue {
	return scheduler.Queue{
		Name: q.Name, Algorithm: string(q.Spec.Algorithm), Suspended: ptr.Deref(q.Spec.Suspend, false),
		Preempts: q.Spec.PreemptionPolicy == aiplatformv1alpha1.PreemptLowerPriority, MaxJobs: int(q.Spec.MaxConcurrency),
		Quota: quotaOf(q.Spec.Quotas), Borrowing: quotaOf(q.Spec.BorrowingLimits), Cohort: q.Spec.Cohort,
		PerUser: tenantOf(q.Spec.UserLimits), PerNamespace: tenantOf(q.Spec.NamespaceLimits),
	}
}

func quotaOf(limits *aiplatformv1alpha1.ResourceLimits) *scheduler.Quota {
	if limits == nil {
		return nil
	}
	quota := &scheduler.Quota{}
	if limits.GPUs != nil {
		quota.GPUs = ptr.To(int64(*limits.GPUs))
	}
	if limits.CPU != nil {
		quota.MilliCPU = ptr.To(limits.CPU.MilliValue())
	}
	if limits.Memory != nil {
		quota.Memory = ptr.To(limits.Memory.Value())
	}
	return quota
}

func tenantOf(limits *aiplatformv1alpha1.TenantLimits) *scheduler.TenantQuota {
	if limits == nil {
		return nil
	}
	quota := &scheduler.TenantQuota{Quota: *quotaOf(&limits.ResourceLimits)}
	if limits.MaxConcurrency != nil {
		quota.MaxJobs = ptr.To(int(*limits.MaxConcurrency))
	}
	return quota
}

// clusterOf is a cluster for the scheduler.
func clusterOf(c *aiplatformv1alpha1.ComputeCluster) scheduler.Cluster {
	cluster := scheduler.Cluster{Name: c.Name, NodeSelector: Selector(c.Spec.NodeSelector)}
	if limits := c.Spec.Capacity; limits != nil {
		if limits.MaxJobs != nil {
			cluster.MaxJobs = ptr.To(int(*limits.MaxJobs))
		}
		if limits.MaxGPUs != nil {
			cluster.MaxGPUs = ptr.To(int64(*limits.MaxGPUs))
		}
	}
	if c.Spec.MaxNodes != nil {
		cluster.MaxNodes = ptr.To(int(*c.Spec.MaxNodes))
	}
	return cluster
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
