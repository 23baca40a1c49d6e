// Package workerpool keeps the pooled workers of AIJobQueues: a Deployment for each queue that asks for workers, with as many pods as
// its tasks need, which the job service tells; down to none and back.
package workerpool

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/child"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
)

const (
	// fieldOwner is who the API server notes as the writer of the workers' objects and of this controller's part of the status.
	// The rest of a queue's status is written by others, under another name.
	fieldOwner = client.FieldOwner("spot-training-operator-workers")
	// Interval at which the job service is asked by default.
	Interval = 2 * time.Second
	// podsInterval is how often pods that are not ready are looked at.
	podsInterval = 5 * time.Second
	// figuresInterval is how long figures of tasks may be late in the status when nothing else changes.
	figuresInterval = 10 * time.Second
	// authoritiesInterval is how often it is looked whether the job service's certificate has other authorities, unknownInterval how often
	// while there are none. Those of a renewal are known for days before they are needed; others, as after a change of its names, at once. A look asks
	// no one.
	authoritiesInterval, unknownInterval = time.Minute, time.Second
)

// Settings of the workers.
type Settings struct {
	// Namespace of the operator.
	Namespace string
	// WorkerImage is the operator's own.
	WorkerImage string
	// JobServiceURL is where the job service is, for the workers and the manager.
	JobServiceURL string
	// Authorities of the job service's certificate, in PEM, that the workers and the manager trust beside those of the system. They may not be
	// known yet. nil: there are none.
	Authorities func() (bundle string, known bool)
}

// Reconciler keeps the workers of each queue.
type Reconciler struct {
	// Client reads from the cache.
	client.Client
	// Direct reads from the API server.
	Direct client.Reader
	Clock  clock.PassiveClock
	// Settings of the workers.
	Settings Settings
	// Interval at which the job service is asked; 0: the default.
	Interval time.Duration

	// uncached writes what is not in the cache: after a write the cached client would follow all objects of the kind.
	uncached client.Client
	depths   *depths
	// memories by the name of the queue. There is one reconciliation at a time.
	memories map[types.NamespacedName]memory
}

// CachedObjects keep only the Deployments of workers in the manager's cache.
func CachedObjects() map[client.Object]cache.ByObject {
	selector, err := labels.Parse(aiplatformv1alpha1.LabelWorkerPool)
	if err != nil {
		panic(err) // a constant of the API
	}
	return map[client.Object]cache.ByObject{&appsv1.Deployment{}: {Label: selector}}
}

// The right to a token of the manager's own ServiceAccount lies in config/rbac. The verb work is for the workers: the manager can only grant
// rights that it has.
// +kubebuilder:rbac:groups=aiplatform.example.com,resources=aijobqueues,verbs=list;watch;work
// +kubebuilder:rbac:groups=aiplatform.example.com,resources=aijobqueues/status,verbs=patch
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=list;watch;create;patch;delete,namespace=system
// +kubebuilder:rbac:groups="",resources=serviceaccounts;configmaps,verbs=get;create;patch;delete,namespace=system
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles;clusterrolebindings,verbs=get;create;patch;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=list,namespace=system

// SetupWithManager registers the controller, and what asks the job service.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	var err error
	if r.uncached, err = child.Uncached(mgr); err != nil {
		return err
	}
	token := &tokens{client: r.uncached, namespace: r.Settings.Namespace, clock: r.Clock}
	service := &JobService{URL: r.Settings.JobServiceURL, Token: token.get, Authorities: r.Settings.Authorities}
	r.begin(mgr.GetCache(), service.Queues)
	if err := mgr.Add(r.depths); err != nil {
		return fmt.Errorf("add what asks the job service: %w", err)
	}
	byLabel := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []reconcile.Request {
		return []reconcile.Request{reconciling.Named("", object.GetLabels()[aiplatformv1alpha1.LabelWorkerPool])}
	})
	return ctrl.NewControllerManagedBy(mgr).
		Named("worker-pool").
		For(&aiplatformv1alpha1.AIJobQueue{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&appsv1.Deployment{}, byLabel).
		WatchesRawSource(source.TypedChannel(r.depths.changed, handler.TypedEnqueueRequestsFromMapFunc(reconciling.ByName))).
		Complete(r)
}

func (r *Reconciler) begin(reader client.Reader, queues func(context.Context) (map[string]Figures, error)) {
	r.depths = &depths{
		reader: reader, queues: queues, interval: cmp.Or(r.Interval, Interval), changed: make(chan event.TypedGenericEvent[types.NamespacedName], 1024),
	}
	r.memories = map[types.NamespacedName]memory{}
}

// Reconcile makes, scales or removes the workers of one queue, and reports.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	forget := func(queue types.NamespacedName) { delete(r.memories, queue) } // what it has goes with it
	return reconciling.Object(ctx, r, request, &aiplatformv1alpha1.AIJobQueue{}, forget, r.reconcile)
}

func (r *Reconciler) reconcile(ctx context.Context, queue *aiplatformv1alpha1.AIJobQueue) (time.Duration, error) {
	o, err := r.observe(ctx, queue)
	if err != nil {
		return 0, err
	}
	d := plan(o, r.Settings)
	m := o.memory
	m.known, m.scaling = true, d.scaling
	failed := r.apply(ctx, o, d, &m)
	again, err := r.report(ctx, o, d, child.ProblemOf(failed), &m)
	r.memories[client.ObjectKeyFromObject(queue)] = m
	return again, cmp.Or(err, failed)
}

func (r *Reconciler) observe(ctx context.Context, queue *aiplatformv1alpha1.AIJobQueue) (observed, error) {
	o := observed{queue: queue, answer: r.depths.of(queue.Name), memory: r.memories[client.ObjectKeyFromObject(queue)], now: r.Clock.Now()}
	if o.memory.of != queue.UID { // it was of an earlier queue of this name
		o.memory = memory{of: queue.UID}
	}
	o.trust = trust{known: true}
	if r.Settings.Authorities != nil {
		o.trust.bundle, o.trust.known = r.Settings.Authorities()
		o.trust.changes = true
	}
	mine := client.MatchingLabels{aiplatformv1alpha1.LabelWorkerPool: queue.Name}
	all, err := reconciling.List[*appsv1.Deployment](ctx, r, &appsv1.DeploymentList{}, mine)
	if err != nil {
		return o, err
	}
	o.deployments = slices.DeleteFunc(all, func(one *appsv1.Deployment) bool { return !metav1.IsControlledBy(one, queue) })
	if queue.Spec.Workers == nil {
		return o, nil
	}
	namespace := r.Settings.namespaceOf(queue.Spec.Workers)
	if slices.ContainsFunc(o.deployments, func(one *appsv1.Deployment) bool {
		return one.Namespace == namespace && one.Status.ReadyReplicas < one.Status.Replicas
	}) {
		o.pods, err = reconciling.List[*corev1.Pod](ctx, r.Direct, &corev1.PodList{}, mine, client.InNamespace(namespace))
	}
	return o, err
}
