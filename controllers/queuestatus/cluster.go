package queuestatus

import (
	"context"
	"fmt"
	"math"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/queueing"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
	"github.com/dcnlab/spot-training-operator/internal/tracing"
)

// ClusterFigures are the figures of clusters.
type ClusterFigures interface {
	// Cluster returns the figures of the nodes with the labels, and of the jobs in the cluster of the name; false while they are not known.
	Cluster(name string, selector map[string]string) (queueing.ClusterFigures, bool)
	// Changes reports the clusters whose figures may have changed, when it is asked for their kind.
	Changes(kind string) source.Source
}

// ClusterReconciler writes the status of ComputeClusters.
type ClusterReconciler struct {
	// Client reads from the cache.
	client.Client
	// Clock tells the time.
	Clock clock.PassiveClock
	// Figures of the clusters.
	Figures ClusterFigures

	pacer reporting.Pacer
}

// +kubebuilder:rbac:groups=aiplatform.example.com,resources=computeclusters,verbs=list;watch
// +kubebuilder:rbac:groups=aiplatform.example.com,resources=computeclusters/status,verbs=patch

// SetupWithManager registers the controller.
func (r *ClusterReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("computecluster").
		For(&aiplatformv1alpha1.ComputeCluster{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(r.Figures.Changes(queueing.KindCluster)).
		Complete(tracing.Reconciler(queueing.KindCluster, r))
}

// Reconcile brings the status of one cluster up to date.
func (r *ClusterReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	return reconciling.Object(ctx, r, request, &aiplatformv1alpha1.ComputeCluster{}, r.pacer.Forget, r.reconcile)
}

func (r *ClusterReconciler) reconcile(ctx context.Context, cluster *aiplatformv1alpha1.ComputeCluster) (time.Duration, error) {
	figures, known := r.Figures.Cluster(cluster.Name, queueing.Selector(cluster.Spec.NodeSelector))
	if !known {
		return 0, nil // the cluster is reconciled again when they are
	}
	o := observedCluster{cluster: cluster, figures: figures, now: r.Clock.Now()}
	next := cluster.DeepCopy()
	next.Status = planCluster(o)
	before, after := &cluster.Status, &next.Status
	return report(ctx, r, &r.pacer, cluster, next, reporting.Transition{
		From: string(before.Health), To: string(after.Health), Before: before.Conditions, After: after.Conditions,
	}, o.now)
}

// observedCluster is all that a cluster's plan is made from.
type observedCluster struct {
	cluster *aiplatformv1alpha1.ComputeCluster
	figures queueing.ClusterFigures
	now     time.Time
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

func count(n int64) int32 { return int32(min(n, math.MaxInt32)) } //nolint:gosec // bounded in the same line
