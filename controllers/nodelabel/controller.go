// Package nodelabel labels the nodes that go, whatever gave the notice: the affinity of pods sees labels, and neither taints nor annotations.
package nodelabel

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/child"
	"github.com/dcnlab/spot-training-operator/internal/nodenotice"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
	"github.com/dcnlab/spot-training-operator/internal/tracing"
)

// Reconciler labels nodes. The client reads from the manager's cache.
type Reconciler struct{ client.Client }

// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch;patch

// SetupWithManager registers the controller. It looks at the few nodes whose label is to change only.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).
		Named("nodelabel").
		For(&corev1.Node{}, builder.WithPredicates(predicate.NewPredicateFuncs(func(object client.Object) bool {
			node, ok := object.(*corev1.Node)
			return ok && isNoticed(node) != isLabelled(node)
		}))).
		Complete(tracing.Reconciler("Node", r))
	if err != nil {
		return fmt.Errorf("set up the labels of nodes: %w", err)
	}
	return nil
}

// Reconcile gives a node with a notice the label, and takes it off one whose notice was withdrawn.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	node, err := reconciling.Get[corev1.Node](ctx, r, "", request.Name)
	if node == nil || isNoticed(node) == isLabelled(node) {
		return ctrl.Result{}, err
	}
	var value any // none removes it
	if isNoticed(node) {
		value = ""
	}
	return reconciling.Result(0, child.Writer{Client: r.Client}.Merge(ctx, node, map[string]any{"metadata": map[string]any{
		"labels": map[string]any{spotv1alpha1.LabelPreemption: value},
	}}))
}

func isNoticed(node *corev1.Node) bool {
	_, noticed := nodenotice.FromNode(node, time.Time{})
	return noticed
}

func isLabelled(node *corev1.Node) bool {
	_, labelled := node.Labels[spotv1alpha1.LabelPreemption]
	return labelled
}
