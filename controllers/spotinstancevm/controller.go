// Package spotinstancevm runs SpotInstanceVMs: it creates instances for pods that find no room, follows each through its
// life (launch, join, ready, preempted, gone: a file of each name) and deletes it when it is no longer needed. Every
// reconciliation observes, plans, reports and applies: what is going to be asked of the provider is in the status before
// it is asked for, so that no crash loses an instance. All decisions are in the plan, which is a pure function.
package spotinstancevm

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/cloud"
	"github.com/dcnlab/spot-training-operator/internal/cloud/inventory"
	"github.com/dcnlab/spot-training-operator/internal/metrics"
	"github.com/dcnlab/spot-training-operator/internal/queueing"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
	"github.com/dcnlab/spot-training-operator/internal/tracing"
)

// Joining makes instances nodes of this cluster.
type Joining interface {
	// Metadata is what an instance must be able to read of itself to join; what it needs for that, such as a token, is
	// made. Doing it twice gives the same.
	Metadata(ctx context.Context, vm *spotv1alpha1.SpotInstanceVM, instance string) (map[string]string, error)
	// Login joins an instance over SSH. It takes minutes.
	Login(ctx context.Context, vm *spotv1alpha1.SpotInstanceVM, instance spotv1alpha1.ProvisionedInstance, provider cloud.Provider) error
	// Revoke ends the validity of what was made for the instance.
	Revoke(ctx context.Context, vm *spotv1alpha1.SpotInstanceVM, instance string) error
}

// Reconciler runs SpotInstanceVMs.
type Reconciler struct {
	// Client reads from the cache and reads its own writes.
	client.Client
	// Direct reads from the API server.
	Direct client.Reader
	// Secrets writes Secrets. It must not be a client that reads its writes from a cache: that would become a cache of all Secrets.
	Secrets  client.Writer
	Clock    clock.WithTicker
	Recorder events.EventRecorder
	Metrics  *metrics.SpotInstances
	// Provide makes the provider of an account, without asking it for anything.
	Provide func(context.Context, inventory.Account) (cloud.Provider, error)
	// Joining makes instances nodes.
	Joining Joining
	// Uses tells what admission by queues knows of nodes; false while it does not know yet.
	Uses func(nodes []string) (map[string]queueing.NodeUse, bool)
	// Queued makes the pods that a TrainingJob is going to have when it waits in a queue for nothing but room for them.
	Queued func(*mlv1.TrainingJob) []*corev1.Pod

	// Pace of waiting. Default that of the real world.
	Pace Pace

	// cluster tells the instances of this cluster from those of others: the UID of the namespace kube-system.
	cluster     string
	pods        client.Reader
	inventories *inventory.Inventories
	background  context.Context //nolint:containedctx // that of the manager, for work that outlives a reconciliation
	changed     chan event.TypedGenericEvent[types.NamespacedName]
	newName     func() string
	newID       func() string

	memory     memory
	exhaustion exhaustion
	secrets    *utilcache.Expiring // readSecret by name: they are not in the cache, so that the manager holds none that it does not use
	orphans    *utilcache.Expiring // instances without an owner that were deleted a moment ago
}

// Options of the controller.
type Options struct {
	// Concurrency is how many SpotInstanceVMs are reconciled at the same time.
	Concurrency int
	// ListInterval is the time between two lists of a zone's instances.
	ListInterval time.Duration
	// Namespaces to watch; all when it is empty.
	Namespaces []string
}

// +kubebuilder:rbac:groups=training.training.dcnlab.com,resources=spotinstancevms,verbs=get;list;watch;patch,namespace=system
// +kubebuilder:rbac:groups=training.training.dcnlab.com,resources=spotinstancevms/status,verbs=patch,namespace=system
// +kubebuilder:rbac:groups=training.training.dcnlab.com,resources=spotinstancejobs,verbs=list;watch,namespace=system
// +kubebuilder:rbac:groups=ml.example.com,resources=trainingjobs,verbs=list;watch,namespace=system
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch,namespace=system
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;patch,namespace=system
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create,namespace=system

// SetupWithManager registers the controller and what it watches.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options Options) error {
	var system corev1.Namespace
	if err := r.Direct.Get(ctx, client.ObjectKey{Name: "kube-system"}, &system); err != nil {
		return fmt.Errorf("read the namespace kube-system, whose UID stands for this cluster: %w", err)
	}
	r.cluster, r.background = string(system.UID), ctx
	r.secrets, r.orphans = utilcache.NewExpiringWithClock(r.Clock), utilcache.NewExpiringWithClock(r.Clock)
	r.changed = make(chan event.TypedGenericEvent[types.NamespacedName], 1024)
	if r.newName == nil {
		r.newName = func() string { return utilrand.String(5) }
	}
	if r.newID == nil {
		r.newID = func() string { return string(uuid.NewUUID()) }
	}
	if r.Pace == (Pace{}) {
		r.Pace = defaultPace
	}
	r.inventories = inventory.New(inventory.Options{
		Provide: r.Provide, Cluster: r.cluster, Interval: options.ListInterval, Clock: r.Clock, Changed: r.wake, Listed: r.Metrics.Listed,
	})
	if err := mgr.Add(r.inventories); err != nil {
		return fmt.Errorf("add the inventory of instances: %w", err)
	}
	pods, err := newPodCache(ctx, mgr, options.Namespaces)
	if err != nil {
		return err
	}
	r.pods = pods
	indices := mgr.GetFieldIndexer()
	if err := errors.Join(
		reconciling.Index(ctx, indices, &spotv1alpha1.SpotInstanceJob{}, indexVM, vmOfJob),
		reconciling.Index(ctx, indices, &spotv1alpha1.SpotInstanceVM{}, indexInstance, namesOfInstances),
		reconciling.Index(ctx, indices, &mlv1.TrainingJob{}, indexQueued, vmOfQueued),
	); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("spotinstancevm").
		WithOptions(reconciling.Options(options.Concurrency)).
		For(&spotv1alpha1.SpotInstanceVM{}).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.vmsOfNode)).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(r.vmsOfNamespace), builder.WithPredicates(
			predicate.Or(predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		Watches(&spotv1alpha1.SpotInstanceJob{}, reconciling.ByNames(vmOfJob)).
		Watches(&mlv1.TrainingJob{}, reconciling.ByNames(vmOfQueued), builder.WithPredicates(r.queuedChanged())).
		WatchesRawSource(source.Kind(pods, &corev1.Pod{}, handler.TypedEnqueueRequestsFromMapFunc(r.vmsOfPod))).
		WatchesRawSource(source.TypedChannel(r.changed, handler.TypedEnqueueRequestsFromMapFunc(reconciling.ByName))).
		Complete(tracing.Reconciler("SpotInstanceVM", r))
}

func (r *Reconciler) wake(vm types.NamespacedName) {
	select {
	case r.changed <- event.TypedGenericEvent[types.NamespacedName]{Object: vm}:
	case <-r.background.Done():
	}
}

// Reconcile brings one SpotInstanceVM a step further.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	vm, err := reconciling.Get[spotv1alpha1.SpotInstanceVM](ctx, r, request.Namespace, request.Name)
	switch {
	case err != nil:
		return ctrl.Result{}, err
	case vm == nil:
		r.inventories.Forget(request.NamespacedName)
		// One whose finalizer was removed by hand leaves that of its Secret.
		kept := r.releaseSecrets(ctx, request.NamespacedName, r.memory.secretsOf(request.NamespacedName))
		if kept == nil {
			r.memory.forget(request.NamespacedName)
		}
		orphans, unswept := r.sweep(ctx, request.NamespacedName, "")
		return reconciling.Result(orphans, errors.Join(kept, unswept))
	}
	return reconciling.Result(r.reconcile(ctx, vm))
}

func (r *Reconciler) reconcile(ctx context.Context, vm *spotv1alpha1.SpotInstanceVM) (time.Duration, error) {
	if vm.DeletionTimestamp != nil && !controllerutil.ContainsFinalizer(vm, spotv1alpha1.FinalizerInstances) {
		if secret := vm.Annotations[spotv1alpha1.AnnotationCredentialsSecret]; secret != "" { // the finalizer was removed by hand
			return 0, r.releaseSecret(ctx, client.ObjectKeyFromObject(vm), secret)
		}
		return 0, nil
	}
	orphans, unswept := r.sweep(ctx, client.ObjectKeyFromObject(vm), vm.UID) // an orphan that stays must not hold up the others
	o, account, err := r.observe(ctx, vm)
	if err != nil {
		return 0, err
	}
	d := plan(o)
	if orphans > 0 {
		d.lookAgain(orphans)
	}
	if o.access.exists() || o.shapeless.exists() {
		d.lookAgain(secretAge)
	}
	vm, err = r.report(ctx, o, &d)
	if err != nil {
		return 0, err
	}
	r.memory.settle(vm, d, o.now)
	again, err := r.apply(ctx, o, vm, account, d)
	if err != nil {
		return 0, err
	}
	if again {
		d.lookAgain(0)
	}
	if d.release {
		return 0, errors.Join(r.release(ctx, vm), unswept)
	}
	return d.again, unswept
}
