// Package queuestatus reports what the jobs of each AIJobQueue do, and which nodes each ComputeCluster has and what runs there. Jobs
// are admitted and placed by internal/queueing.
package queuestatus

import (
	"context"
	"time"

	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/queueing"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
	"github.com/dcnlab/spot-training-operator/internal/tracing"
)

// QueueFigures are the figures of queues.
type QueueFigures interface {
	// Queue returns the figures of the jobs of a queue; false while they are not known.
	Queue(name string) (queueing.QueueFigures, bool)
	// QueueChanges reports queues whose figures changed or became known.
	QueueChanges() source.Source
}

// QueueReconciler writes the status of AIJobQueues.
type QueueReconciler struct {
	// Client reads from the cache.
	client.Client
	// Clock tells the time.
	Clock clock.PassiveClock
	// Figures of the queues.
	Figures QueueFigures

	reporter reporter
}

// +kubebuilder:rbac:groups=aiplatform.example.com,resources=aijobqueues,verbs=list;watch
// +kubebuilder:rbac:groups=aiplatform.example.com,resources=aijobqueues/status,verbs=patch
// +kubebuilder:rbac:groups=scheduling.k8s.io,resources=priorityclasses,verbs=list;watch

// SetupWithManager registers the controller.
func (r *QueueReconciler) SetupWithManager(mgr ctrl.Manager) error {
	comesOrGoes := reconciling.Changed(func(_, _ *schedulingv1.PriorityClass) bool { return false })
	return ctrl.NewControllerManagedBy(mgr).
		Named("aijobqueue").
		For(&aiplatformv1alpha1.AIJobQueue{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&schedulingv1.PriorityClass{}, handler.EnqueueRequestsFromMapFunc(r.queuesOfClass), builder.WithPredicates(comesOrGoes)).
		WatchesRawSource(r.Figures.QueueChanges()).
		Complete(tracing.Reconciler("AIJobQueue", r))
}

// queuesOfClass are the queues that name a PriorityClass.
func (r *QueueReconciler) queuesOfClass(ctx context.Context, class client.Object) []reconcile.Request {
	return reconciling.Matching(ctx, r, &aiplatformv1alpha1.AIJobQueueList{}, func(queue *aiplatformv1alpha1.AIJobQueue) bool {
		return queue.Spec.PriorityClass == class.GetName()
	})
}

// Reconcile brings the status of one queue up to date.
func (r *QueueReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	return reconciling.Object(ctx, r, request, &aiplatformv1alpha1.AIJobQueue{}, r.reporter.Forget, r.reconcile)
}

func (r *QueueReconciler) reconcile(ctx context.Context, queue *aiplatformv1alpha1.AIJobQueue) (time.Duration, error) {
	figures, known := r.Figures.Queue(queue.Name)
	if !known {
		return 0, nil // the queue is reconciled again when they are
	}
	o := observedQueue{queue: queue, figures: figures, now: r.Clock.Now()}
	if name := queue.Spec.PriorityClass; name != "" {
		class, err := reconciling.Get[schedulingv1.PriorityClass](ctx, r, "", name)
		if err != nil {
			return 0, err
		}
		o.classMissing = class == nil
	}
	return r.report(ctx, o, planQueue(o))
}

// report writes the status when it changed: figures alone at most every few seconds.
func (r *QueueReconciler) report(ctx context.Context, o observedQueue, status aiplatformv1alpha1.AIJobQueueStatus) (time.Duration, error) {
	before, next := o.queue.Status.Conditions, o.queue.DeepCopy()
	next.Status = status
	urgent := !equality.Semantic.DeepEqual(before, status.Conditions)
	return r.reporter.report(ctx, r, o.queue, next, reporting.Transition{Before: before, After: status.Conditions}, urgent, o.now)
}
