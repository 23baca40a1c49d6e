// Package queuestatus reports what the jobs of each AIJobQueue do, and which nodes each ComputeCluster has and what runs there. Jobs
// are admitted and placed by internal/queueing.
package queuestatus

import (
	"context"
	"fmt"
	"time"

	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/queueing"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
	"github.com/dcnlab/spot-training-operator/internal/tracing"
)

// QueueFigures are the figures of queues.
type QueueFigures interface {
	// Queue returns the figures of the jobs of a queue; false while they are not known.
	Queue(name string) (queueing.QueueFigures, bool)
	// Changes reports the queues whose figures changed or became known, when it is asked for their kind.
	Changes(kind string) source.Source
}

// QueueReconciler writes the status of AIJobQueues.
type QueueReconciler struct {
	// Client reads from the cache.
	client.Client
	// Clock tells the time.
	Clock clock.PassiveClock
	// Figures of the queues.
	Figures QueueFigures

	pacer reporting.Pacer
}

// +kubebuilder:rbac:groups=aiplatform.example.com,resources=aijobqueues,verbs=list;watch
// +kubebuilder:rbac:groups=aiplatform.example.com,resources=aijobqueues/status,verbs=patch
// +kubebuilder:rbac:groups=scheduling.k8s.io,resources=priorityclasses,verbs=list;watch

// SetupWithManager registers the controller.
func (r *QueueReconciler) SetupWithManager(mgr ctrl.Manager) error {
	comesOrGoes := predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}
	return ctrl.NewControllerManagedBy(mgr).
		Named("aijobqueue").
		For(&aiplatformv1alpha1.AIJobQueue{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&schedulingv1.PriorityClass{}, handler.EnqueueRequestsFromMapFunc(r.queuesOfClass), builder.WithPredicates(comesOrGoes)).
		WatchesRawSource(r.Figures.Changes(queueing.KindQueue)).
		Complete(tracing.Reconciler(queueing.KindQueue, r))
}

// queuesOfClass are the queues that name a PriorityClass.
func (r *QueueReconciler) queuesOfClass(ctx context.Context, class client.Object) []reconcile.Request {
	return reconciling.Matching(ctx, r, &aiplatformv1alpha1.AIJobQueueList{}, func(queue *aiplatformv1alpha1.AIJobQueue) bool {
		return queue.Spec.PriorityClass == class.GetName()
	})
}

// Reconcile brings the status of one queue up to date.
func (r *QueueReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	return reconciling.Object(ctx, r, request, &aiplatformv1alpha1.AIJobQueue{}, r.pacer.Forget, r.reconcile)
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
	next := queue.DeepCopy()
	next.Status = planQueue(o)
	told := reporting.Transition{Before: queue.Status.Conditions, After: next.Status.Conditions}
	return report(ctx, r, &r.pacer, queue, next, told, o.now)
}

// observedQueue is all that a queue's plan is made from.
type observedQueue struct {
	queue        *aiplatformv1alpha1.AIJobQueue
	figures      queueing.QueueFigures
	classMissing bool
	now          time.Time
}

// planQueue returns the status that the queue should have. What others write into it stays.
func planQueue(o observedQueue) aiplatformv1alpha1.AIJobQueueStatus {
	status := *o.queue.Status.DeepCopy()
	status.ObservedGeneration = o.queue.Generation
	status.Depth, status.Running = count(int64(o.figures.Depth)), count(int64(o.figures.Running))
	status.OldestQueuedTime = nil
	if !o.figures.Oldest.IsZero() {
		status.OldestQueuedTime = ptr.To(metav1.NewTime(o.figures.Oldest).Rfc3339Copy())
	}
	status.Usage = usage(o.figures)
	value, reason, message := readiness(o)
	reporting.Set(&status.Conditions, o.queue.Generation, o.now, reasons.ConditionReady, value, reason, message)
	return status
}

func readiness(o observedQueue) (value metav1.ConditionStatus, reason, message string) {
	switch spec := &o.queue.Spec; {
	case ptr.Deref(spec.Suspend, false):
		return metav1.ConditionFalse, reasons.QueueSuspended,
			"spec.suspend is true: running jobs continue, and no other is admitted until it is false"
	case o.classMissing:
		return metav1.ConditionTrue, reasons.PriorityClassNotFound, fmt.Sprintf(
			"the queue admits jobs, but there is no PriorityClass %s: their pods get the cluster's default; create it, or correct spec.priorityClass",
			spec.PriorityClass)
	}
	return metav1.ConditionTrue, reasons.Ready, "the queue admits jobs"
}

func usage(f queueing.QueueFigures) *aiplatformv1alpha1.ResourceUsage {
	sum := &aiplatformv1alpha1.ResourceUsage{GPUs: count(f.Usage.GPUs)}
	if f.Usage.MilliCPU > 0 {
		sum.CPU = resource.NewMilliQuantity(f.Usage.MilliCPU, resource.DecimalSI)
	}
	if f.Usage.Memory > 0 {
		sum.Memory = resource.NewQuantity(f.Usage.Memory, resource.BinarySI)
	}
	return sum
}
