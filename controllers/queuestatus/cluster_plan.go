package queuestatus

import (
	"fmt"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/queueing"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
)

// observedCluster is all that a cluster's plan is made from.
type observedCluster struct {
	cluster *aiplatformv1alpha1.ComputeCluster
	figures queueing.ClusterFigures
	now     time.Time
}

// selectorOf are the labels of the cluster's nodes.
func selectorOf(cluster *aiplatformv1alpha1.ComputeCluster) map[string]string {
	labels := map[string]string{}
	for key, value := range cluster.Spec.NodeSelector {
		labels[key] = string(value)
	}
	return labels
}

// planCluster returns the status that the cluster should have.
func planCluster(o observedCluster) aiplatformv1alpha1.ComputeClusterStatus {
	status := *o.cluster.Status.DeepCopy()
	status.ObservedGeneration = o.cluster.Generation
	status.TotalNodes, status.ReadyNodes = count(int64(o.figures.Nodes)), count(int64(o.figures.Ready))
	status.TotalGPUs, status.FreeGPUs = count(o.figures.GPUs), count(o.figures.FreeGPUs)
	status.RunningJobs = count(int64(o.figures.Jobs))
	health, value, reason, message := health(o)
	status.Health = health
	reporting.Set(&status.Conditions, o.cluster.Generation, o.now, reasons.ConditionReady, value, reason, message)
	return status
}

// health judges the health of the nodes. Jobs are placed in a cluster as long as a node takes them.
func health(o observedCluster) (health aiplatformv1alpha1.ClusterHealth, value metav1.ConditionStatus, reason, message string) {
	f, least := o.figures, int(ptr.Deref(o.cluster.Spec.MinNodes, 0))
	switch {
	case f.Nodes == 0 && least == 0:
		return aiplatformv1alpha1.ClusterUnknown, metav1.ConditionFalse, reasons.NoMatchingNodes, noNodes(o.cluster)
	case f.Nodes == 0:
		return aiplatformv1alpha1.ClusterUnhealthy, metav1.ConditionFalse, reasons.NoMatchingNodes, noNodes(o.cluster)
	case f.Ready == 0:
		return aiplatformv1alpha1.ClusterUnhealthy, metav1.ConditionFalse, reasons.NodesNotReady,
			fmt.Sprintf("none of the %d nodes takes pods: each is not ready, cordoned or about to go", f.Nodes)
	case f.Ready < least:
		return aiplatformv1alpha1.ClusterDegraded, metav1.ConditionTrue, reasons.NodesNotReady,
			fmt.Sprintf("%d of %d nodes take pods, and spec.minNodes is %d", f.Ready, f.Nodes, least)
	case f.Ready < f.Nodes:
		return aiplatformv1alpha1.ClusterDegraded, metav1.ConditionTrue, reasons.NodesNotReady,
			fmt.Sprintf("%d of %d nodes take pods: the others are not ready, cordoned or about to go", f.Ready, f.Nodes)
	}
	return aiplatformv1alpha1.ClusterHealthy, metav1.ConditionTrue, reasons.Ready, "all nodes take pods"
}

func noNodes(cluster *aiplatformv1alpha1.ComputeCluster) string {
	if len(cluster.Spec.NodeSelector) == 0 {
		return "the Kubernetes cluster has no nodes"
	}
	return "no node has all labels of spec.nodeSelector: label nodes, or correct it"
}

// isSameReadiness says whether conditions differ in wording alone.
func isSameReadiness(a, b []metav1.Condition) bool {
	before, after := meta.FindStatusCondition(a, reasons.ConditionReady), meta.FindStatusCondition(b, reasons.ConditionReady)
	return before != nil && after != nil && before.Status == after.Status && before.Reason == after.Reason &&
		before.ObservedGeneration == after.ObservedGeneration
}

func count(n int64) int32 { return int32(min(n, math.MaxInt32)) }
