package queuestatus

import (
	"context"
	"fmt"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/queueing"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
	"github.com/dcnlab/spot-training-operator/internal/tracing"
)

// ClusterFigures are the figures of clusters.
type ClusterFigures interface {
	// Cluster returns the figures of the nodes with the labels, and of the jobs in the cluster of the name; false while they are not known.
	Cluster(name string, selector map[string]string) (queueing.ClusterFigures, bool)
	// ClusterChanges reports clusters whose figures may have changed.
	ClusterChanges() source.Source
}

// ClusterReconciler writes the status of ComputeClusters.
type ClusterReconciler struct {
	// Client reads from the cache.
	client.Client
	// Clock tells the time.
	Clock clock.PassiveClock
	// Figures of the clusters.
	Figures ClusterFigures

	reporter reporter
}

// +kubebuilder:rbac:groups=aiplatform.example.com,resources=computeclusters,verbs=list;watch
// +kubebuilder:rbac:groups=aiplatform.example.com,resources=computeclusters/status,verbs=patch

// SetupWithManager registers the controller.
func (r *ClusterReconciler) SetupWithManager(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).
		Named("computecluster").
		For(&aiplatformv1alpha1.ComputeCluster{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(r.Figures.ClusterChanges()).
		Complete(tracing.Reconciler("ComputeCluster", r))
	if err != nil {
		return fmt.Errorf("set up the ComputeCluster controller: %w", err)
	}
	return nil
}

// Reconcile brings the status of one cluster up to date.
func (r *ClusterReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var cluster aiplatformv1alpha1.ComputeCluster
	if found, err := r.reporter.read(ctx, r, request.NamespacedName, &cluster); !found {
		return ctrl.Result{}, err
	}
	figures, known := r.Figures.Cluster(cluster.Name, selectorOf(&cluster))
	if !known {
		return ctrl.Result{}, nil // the cluster is reconciled again when they are
	}
	o := observedCluster{cluster: &cluster, figures: figures, now: r.Clock.Now()}
	next := cluster.DeepCopy()
	next.Status = planCluster(o)
	before, after := &cluster.Status, &next.Status
	urgent := before.Health != after.Health || !isSameReadiness(before.Conditions, after.Conditions)
	return r.reporter.report(ctx, r, &cluster, next, reporting.Transition{
		From: string(before.Health), To: string(after.Health), Before: before.Conditions, After: after.Conditions,
	}, urgent, o.now)
}
