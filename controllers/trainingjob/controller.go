// Package trainingjob runs TrainingJobs: it creates their workers, follows their progress and starts them again when
// they fail. Every reconciliation observes, plans, applies and reports, in files of these names; all decisions are in
// the plan, which is a pure function.
package trainingjob

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/child"
	"github.com/dcnlab/spot-training-operator/internal/metrics"
	"github.com/dcnlab/spot-training-operator/internal/nodenotice"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/internal/queueing"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
	"github.com/dcnlab/spot-training-operator/internal/tracing"
	"github.com/dcnlab/spot-training-operator/internal/training/cost"
	"github.com/dcnlab/spot-training-operator/internal/training/progress"
)

// Reconciler runs TrainingJobs.
type Reconciler struct {
	// Client reads from the cache and reads its own writes.
	client.Client
	// Direct reads from the API server.
	Direct client.Reader
	// Clock tells the time.
	Clock clock.PassiveClock
	// Recorder emits events.
	Recorder events.EventRecorder
	// Progress reads what workers report.
	Progress *progress.Scraper
	// Admission decides upon jobs with an AIJobQueue; nil: they wait.
	Admission queueing.Decider
	// Metrics counts what happens.
	Metrics *metrics.TrainingJobs
	// Settings of the installation.
	Settings build.Settings

	// uncached reads and writes objects of kinds that the cluster may not serve: the cache would wait for them.
	uncached      client.Client
	pacer         reporting.Pacer
	turn          chan struct{}
	finalMessages finalMessages
	peersLost     podend.PeersLost
	served        servedKinds
	ledger        cost.Ledger
	prices        cost.Prices
}

// Options of the controller.
type Options struct {
	// Concurrency is how many jobs are reconciled at the same time.
	Concurrency int
	// Reported brings the names of jobs whose workers reported something new.
	Reported <-chan event.TypedGenericEvent[types.NamespacedName]
}

// firstStart is the queue priority of a job that was just created: in a burst all jobs get their workers before any
// gets the rest of its objects.
const firstStart = 10

// +kubebuilder:rbac:groups=ml.example.com,resources=trainingjobs,verbs=get;list;watch;delete,namespace=system
// +kubebuilder:rbac:groups=ml.example.com,resources=trainingjobs/status,verbs=patch,namespace=system
// +kubebuilder:rbac:groups=ml.example.com,resources=trainingjobs/finalizers,verbs=update,namespace=system
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;list;watch;create;patch;delete,namespace=system
// +kubebuilder:rbac:groups="",resources=services;configmaps,verbs=get;list;watch;create;patch;delete,namespace=system
// +kubebuilder:rbac:groups="",resources=serviceaccounts;persistentvolumeclaims,verbs=get;list;watch;create;patch,namespace=system
// +kubebuilder:rbac:groups="",resources=persistentvolumes,verbs=get
// +kubebuilder:rbac:groups=storage.k8s.io,resources=storageclasses,verbs=get
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=get;list;watch;create;patch;delete,namespace=system
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch;patch;delete,namespace=system
// +kubebuilder:rbac:groups="",resources=pods/status,verbs=patch,namespace=system
// +kubebuilder:rbac:groups=scheduling.volcano.sh;scheduling.x-k8s.io;scheduling.k8s.io,resources=podgroups,verbs=get;create;patch;delete,namespace=system
// +kubebuilder:rbac:groups="",resources=events,verbs=list,namespace=system
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch,namespace=system

// SetupWithManager registers the controller and what it watches.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options Options) error {
	if err := addIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	var err error
	r.uncached, err = client.New(mgr.GetConfig(), client.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
	})
	if err != nil {
		return fmt.Errorf("make a client without a cache: %w", err)
	}
	r.ledger.Program, r.turn = &workerProgram, make(chan struct{}, 1)
	byLabel := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, object client.Object) []reconcile.Request {
		if pod, ok := object.(*corev1.Pod); ok {
			r.finalMessages.note(pod)
			r.ledger.Note(pod, r.Clock.Now())
		}
		return reconciling.ByLabel(mlv1.LabelTrainingJob)(ctx, object)
	})
	controller := ctrl.NewControllerManagedBy(mgr).
		Named("trainingjob").
		WithOptions(reconciling.Options(options.Concurrency)).
		Watches(&mlv1.TrainingJob{}, &newJobsFirst{}).
		Watches(&corev1.Pod{}, byLabel, builder.WithPredicates(visibleChange())).
		Watches(&corev1.Node{}, reconciling.First(urgentStart, r.jobsOnNode), builder.WithPredicates(nodenotice.NoticeChanged())).
		Watches(&spotv1alpha1.SpotInstanceVM{}, handler.EnqueueRequestsFromMapFunc(r.jobsOfSpotVM), builder.WithPredicates(capacityChanged())).
		WatchesRawSource(source.TypedChannel(options.Reported, handler.TypedEnqueueRequestsFromMapFunc(reconciling.ByName)))
	for _, kind := range distinctKinds() {
		controller = controller.Watches(kind, byLabel, builder.WithPredicates(visibleChange()))
	}
	if r.Admission != nil {
		controller = controller.WatchesRawSource(r.Admission.Changes(build.Kind))
	}
	return controller.Complete(tracing.Reconciler("TrainingJob", r))
}

// Reconcile brings one TrainingJob a step further. One that is being deleted takes its children with it.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	start, more := r.Clock.Now(), false
	step := func(ctx context.Context, job *mlv1.TrainingJob) (again time.Duration, err error) {
		if job.IsManagedElsewhere() {
			return 0, nil
		}
		again, more, err = r.reconcile(ctx, job)
		r.Metrics.Reconciled(job.Namespace, job.Name, r.Clock.Since(start), errorType(err))
		return again, err
	}
	result, err := reconciling.Object(ctx, r, request, &mlv1.TrainingJob{}, r.forget, step)
	if more {
		result.Priority = ptr.To(0)
	}
	return result, err
}

// reconcile returns when to look again, 0 for never, and whether more is to be done then, after what is more urgent.
func (r *Reconciler) reconcile(ctx context.Context, job *mlv1.TrainingJob) (again time.Duration, more bool, err error) {
	o, err := r.observe(ctx, job)
	if err != nil {
		return 0, false, err
	}
	d := plan(o)
	if d.deleteSelf {
		return 0, false, r.writer().Delete(ctx, job)
	}
	r.Progress.Follow(client.ObjectKeyFromObject(job), progress.Target{
		Metrics: d.scrape, Network: d.network, Agent: d.agent, Request: cmp.Or(d.urgent, d.ask), Urgent: d.urgent != "",
	})
	if o.workers == nil && d.hasWorkers() {
		if err := r.confirm(ctx, job); err != nil {
			return 0, false, err
		}
	}
	if o.lacksServices() {
		defer r.takeTurn(ctx)()
	}
	failed := r.apply(ctx, o, d)
	if errors.Is(failed, errNotInPlace) {
		d, failed = planRequeue(o), nil
	}
	if failed == nil && d.more {
		return time.Millisecond, true, nil
	}
	d = afterApply(o, d, failed)
	hideSecrets(o.job, &d.status)
	o.chargeCost(&d.status)
	if o.priceUnread {
		d.lookAgain(cost.RetryPrice)
	}
	if err := r.report(ctx, o, &d); err != nil {
		return 0, false, err
	}
	var refusal *child.Refusal
	if errors.As(failed, &refusal) { // which the status tells, and a user must end
		failed = nil
	}
	return d.again, false, failed
}

// forget drops what is kept in memory of a job that no longer exists, or is being deleted.
func (r *Reconciler) forget(job types.NamespacedName) {
	r.Progress.Forget(job)
	r.Metrics.Forget(job.Namespace, job.Name)
	r.pacer.Forget(job)
	r.finalMessages.forget(job)
	r.peersLost.Forget(job)
	r.ledger.Forget(job)
}

func errorType(err error) string {
	if _, passes := child.RetryAfter(err); err == nil || passes {
		return ""
	}
	return cmp.Or(string(apierrors.ReasonForError(err)), "Other")
}
