// Package nodeagent puts the node agent on spot nodes: a DaemonSet in the operator's own namespace, which is there as long
// as the cluster has a SpotInstanceVM or a spot node, and the agent the right to patch Nodes with an admission policy that limits it to its
// own Node; else it is not.
package nodeagent

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/child"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
)

const (
	// Name of the DaemonSet and of its ServiceAccount, which is installed with the operator.
	Name = "spot-training-operator-node-agent"
	// ManagerName is the name of the manager's Deployment, with which the DaemonSet goes.
	ManagerName = "spot-training-operator-controller-manager"
)

// Reconciler keeps the DaemonSet.
type Reconciler struct {
	// Client reads from the cache.
	client.Client
	// Direct reads from the API server.
	Direct client.Reader
	// Reviews asks the API server what the agent may do.
	Reviews  kubernetes.Interface
	Recorder events.EventRecorder
	// Settings of the agent.
	Settings Settings

	// written is the generation that this manager wrote last. There is one reconciliation at a time.
	written int64
}

// Settings of the agent.
type Settings struct {
	// Namespace of the operator.
	Namespace string
	// Image of the agent.
	Image string
	// MetadataURL is where the agent finds the metadata server; empty for Compute Engine's own.
	MetadataURL string
}

// CachedObjects keep only this DaemonSet in the manager's cache.
func CachedObjects(namespace string) map[client.Object]cache.ByObject {
	if namespace == "" {
		return nil
	}
	return map[client.Object]cache.ByObject{&appsv1.DaemonSet{}: {
		Namespaces: map[string]cache.Config{namespace: {}}, Field: fields.OneTermEqualSelector("metadata.name", Name),
	}}
}

// Roles in the operator's own namespace lie in config/rbac.
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch
// +kubebuilder:rbac:groups=training.training.dcnlab.com,resources=spotinstancevms,verbs=list;watch,namespace=system

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	// There is one DaemonSet, whatever it is that changed.
	one := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{reconciling.Named(r.Settings.Namespace, Name)}
	})
	// That it is there, or is no longer, is all that matters of a SpotInstanceVM.
	existence := reconciling.Changed(func(_, _ *spotv1alpha1.SpotInstanceVM) bool { return false })
	return ctrl.NewControllerManagedBy(mgr).
		Named("node-agent").
		Watches(&appsv1.DaemonSet{}, one, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&spotv1alpha1.SpotInstanceVM{}, one, builder.WithPredicates(existence)).
		Watches(&corev1.Node{}, one, builder.WithPredicates(spotNodeChanged())).
		Complete(r)
}

// spotNodeChanged lets through that a node that is a spot instance is there, or is no longer.
func spotNodeChanged() predicate.Predicate {
	changed := predicate.NewPredicateFuncs(func(node client.Object) bool { return isSpot(node.GetLabels()) })
	changed.UpdateFunc = func(e event.UpdateEvent) bool {
		return isSpot(e.ObjectOld.GetLabels()) != isSpot(e.ObjectNew.GetLabels())
	}
	return changed
}

// Reconcile applies or deletes the DaemonSet.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	o, err := r.observe(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	if err := r.apply(ctx, o, plan(o, r.Settings)); err != nil || !o.isWanted() {
		return ctrl.Result{}, err
	}
	if o.lack != "" {
		r.tellUnguarded(ctx, o.manager, o.lack)
	}
	return ctrl.Result{RequeueAfter: guardInterval}, nil
}

// observe reads what decides about the DaemonSet. The manager's Deployment is read only when there is something to write.
func (r *Reconciler) observe(ctx context.Context) (o observed, err error) {
	vms, err := reconciling.List[*spotv1alpha1.SpotInstanceVM](ctx, r, &spotv1alpha1.SpotInstanceVMList{}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return o, err
	}
	nodes, err := reconciling.List[*corev1.Node](ctx, r, &corev1.NodeList{}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return o, err
	}
	o.vms, o.written = len(vms), r.written
	for _, node := range nodes {
		if isSpot(node.Labels) {
			o.spotNodes++
		}
	}
	o.existing, err = reconciling.Get[appsv1.DaemonSet](ctx, r, r.Settings.Namespace, Name)
	if err != nil || !o.isWanted() {
		return o, err
	}
	// There is none when the operator runs outside of the cluster; then nothing removes the DaemonSet with it.
	if o.manager, err = reconciling.Get[appsv1.Deployment](ctx, r.Direct, r.Settings.Namespace, ManagerName); err != nil {
		return o, err
	}
	o.lack, err = r.lack(ctx)
	return o, err
}

func (r *Reconciler) apply(ctx context.Context, o observed, d desired) error {
	writer := child.Writer{Client: r.Client, Direct: r.Direct}
	switch {
	case d.remove != nil:
		reason := "the cluster has neither a SpotInstanceVM nor a spot node"
		if o.isWanted() {
			reason = o.lack
		}
		logger := log.FromContext(ctx).WithValues("reason", reason)
		return writer.Delete(log.IntoContext(ctx, logger), d.remove)
	case d.set != nil:
		critical, err := r.mayBeCritical(ctx, d.set)
		if err != nil {
			return err
		}
		if !critical {
			d.set.Spec.Template.Spec.PriorityClassName = ""
		}
		class := d.set.Spec.Template.Spec.PriorityClassName
		if err := writer.Apply(ctx, d.set, map[string]any{"spec": d.set.Spec}); err != nil {
			return err
		}
		r.written = d.set.Generation
		log.FromContext(ctx).Info("Applied DaemonSet", "image", r.Settings.Image, "priorityClass", class)
	}
	return nil
}

// mayBeCritical asks the API server whether the namespace takes the agent's pods with their priority class: a cluster can
// have a quota that keeps the critical classes to some namespaces, as GKE has.
func (r *Reconciler) mayBeCritical(ctx context.Context, set *appsv1.DaemonSet) (bool, error) {
	template := set.Spec.Template.DeepCopy()
	probe := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	probe.Namespace, probe.GenerateName = set.Namespace, set.Name+"-"
	// A dry run has no resource version that the cache could wait for.
	err := r.Create(ctx, probe, client.DryRunAll, client.DisableReadYourWritesConsistency)
	switch {
	case err == nil:
		return true, nil
	case apierrors.IsForbidden(err):
		log.FromContext(ctx).Info("Namespace admits no critical pods, so the node agent has no priority class", "answer", err.Error())
		return false, nil
	}
	return false, fmt.Errorf("ask whether the node agent may be critical: %w", err)
}
