// Package spotinstancejob keeps the replicas of SpotInstanceJobs running on instances that may go at any time: it makes
// their Jobs, has checkpoints taken of them, and starts a lost one again from the newest. Every reconciliation observes,
// plans, applies and reports, in files of these names; all decisions are in the plan, which is a pure function.
package spotinstancejob

import (
	"context"
	"time"

	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/checkpointbackup"
	"github.com/dcnlab/spot-training-operator/internal/child"
	"github.com/dcnlab/spot-training-operator/internal/metrics"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
)

// Reconciler runs SpotInstanceJobs.
type Reconciler struct {
	// Client reads SpotInstanceJobs, SpotInstanceVMs and nodes from the manager's cache, and reads its own writes.
	client.Client
	// Direct reads from the API server.
	Direct   client.Reader
	Clock    clock.PassiveClock
	Recorder events.EventRecorder
	// Backups reads and writes CheckpointBackups.
	Backups *checkpointbackup.Client
	Metrics *metrics.SpotInstanceJobs

	// children reads Jobs and pods of SpotInstanceJobs from a cache of their own, and reads its own writes.
	children  child.Writer
	requested requestedCheckpoints
}

// +kubebuilder:rbac:groups=training.training.dcnlab.com,resources=spotinstancejobs;spotinstancevms,verbs=list;watch,namespace=system
// +kubebuilder:rbac:groups=training.training.dcnlab.com,resources=spotinstancejobs/status,verbs=patch,namespace=system
// +kubebuilder:rbac:groups=training.training.dcnlab.com,resources=spotinstancejobs/finalizers,verbs=update,namespace=system
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;list;watch;create;patch;delete,namespace=system
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch;patch;delete,namespace=system
// +kubebuilder:rbac:groups="",resources=pods/status,verbs=patch,namespace=system
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get,namespace=system
// +kubebuilder:rbac:groups=migration.dcnlab.com,resources=checkpointbackups,verbs=list;watch;create;delete,namespace=system
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create,namespace=system

// Reconcile brings one SpotInstanceJob a step further.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	return reconciling.Object(ctx, r, request, &spotv1alpha1.SpotInstanceJob{}, r.requested.forget, r.reconcile)
}

// reconcile returns when to reconcile again though nothing happens, 0 for never, also beside errors that pass by themselves.
func (r *Reconciler) reconcile(ctx context.Context, job *spotv1alpha1.SpotInstanceJob) (time.Duration, error) {
	o, err := r.observe(ctx, job)
	if err != nil {
		return 0, err
	}
	d := plan(o)
	problems, failed := r.apply(ctx, o, d)
	withProblems(o, &d, problems)
	reporting.SetChildrenApplied(&d.status.Conditions, job.Generation, o.now, failed)
	if err := r.report(ctx, o, &d.status); err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	return d.again, failed
}
