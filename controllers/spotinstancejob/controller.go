// Package spotinstancejob keeps the replicas of SpotInstanceJobs running on instances that may go at any time: it makes
// their Jobs, has checkpoints taken of them, and starts a lost one again from the newest. Every reconciliation observes,
// plans, applies and reports, in files of these names; all decisions are in the plan, which is a pure function.
package spotinstancejob

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/checkpointbackup"
	"github.com/dcnlab/spot-training-operator/internal/child"
	"github.com/dcnlab/spot-training-operator/internal/metrics"
)

// Reconciler runs SpotInstanceJobs.
type Reconciler struct {
	// Client reads SpotInstanceJobs, SpotInstanceVMs and nodes from the manager's cache, and reads its own writes.
	client.Client
	// Direct reads from the API server.
	Direct client.Reader
	// Clock tells the time.
	Clock clock.PassiveClock
	// Recorder emits events.
	Recorder events.EventRecorder
	// Backups reads and writes CheckpointBackups.
	Backups *checkpointbackup.Client
	// Metrics counts what happens.
	Metrics *metrics.SpotInstanceJobs

	// children reads Jobs and pods of SpotInstanceJobs from a cache of their own, and reads its own writes.
	children  child.Writer
	requested requestedCheckpoints
}

// +kubebuilder:rbac:groups=training.training.dcnlab.com,resources=spotinstancejobs;spotinstancevms,verbs=list;watch
// +kubebuilder:rbac:groups=training.training.dcnlab.com,resources=spotinstancejobs/status,verbs=patch
// +kubebuilder:rbac:groups=training.training.dcnlab.com,resources=spotinstancejobs/finalizers,verbs=update
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch;delete
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get
// +kubebuilder:rbac:groups=migration.dcnlab.com,resources=checkpointbackups,verbs=list;watch;create;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create

// Reconcile brings one SpotInstanceJob a step further.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var job spotv1alpha1.SpotInstanceJob
	if err := r.Get(ctx, request.NamespacedName, &job); err != nil {
		if apierrors.IsNotFound(err) {
			r.requested.forget(request.NamespacedName)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("read the SpotInstanceJob: %w", err)
	}
	if job.DeletionTimestamp != nil { // its Jobs and CheckpointBackups go with it
		return ctrl.Result{}, nil
	}
	again, err := r.reconcile(ctx, &job)
	if retry, ok := child.RetryAfter(err); ok {
		if again == 0 || retry < again {
			again = retry
		}
		err = nil
	}
	return ctrl.Result{RequeueAfter: again}, err
}

// reconcile returns when to reconcile again though nothing happens, 0 for never, also beside child.ErrLeftover.
func (r *Reconciler) reconcile(ctx context.Context, job *spotv1alpha1.SpotInstanceJob) (time.Duration, error) {
	o, err := r.observe(ctx, job)
	if err != nil {
		return 0, err
	}
	d := plan(o)
	problems, err := r.apply(ctx, o, d)
	if err != nil && !errors.Is(err, child.ErrLeftover) {
		return 0, err
	}
	withProblems(o, &d, problems)
	if err := r.report(ctx, o, &d.status); err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	return d.again, err
}
