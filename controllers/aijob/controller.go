// Package aijob runs AIJobs: they wait in their queue until they are admitted to nodes; their pods are created there, retried when they
// fail, and their results kept. Every reconciliation observes, plans, applies and reports, in files of these names; all decisions are in
// the plan, which is a pure function. A decision is written into the status before it is carried out, so that a manager that starts
// continues where the last one ended.
package aijob

import (
	"context"
	"time"

	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/child"
	"github.com/dcnlab/spot-training-operator/internal/metrics"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/internal/queueing"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
	"github.com/dcnlab/spot-training-operator/internal/workerdefaults"
)

// Reconciler runs AIJobs.
type Reconciler struct {
	// Client reads AIJobs and AIJobQueues from the manager's cache, and reads its own writes.
	client.Client
	// Direct reads from the API server.
	Direct client.Reader
	// Clock tells the time.
	Clock clock.PassiveClock
	// Recorder emits events.
	Recorder events.EventRecorder
	// Metrics counts what happens.
	Metrics *metrics.AIJobs
	// Decider says which jobs are admitted, and which are preempted.
	Decider queueing.Decider
	// DefaultResources are those of pods whose job names none.
	DefaultResources workerdefaults.Defaults
	// OperatorImage is the operator's own, whose container fetches the code of jobs.
	OperatorImage string

	// children writes the pods and Services of AIJobs, and reads them from a cache of their own.
	children  child.Writer
	pacer     reporting.Pacer
	peersLost podend.PeersLost
	load      load
}

// maxPlans is how often a job is planned again in one reconciliation after its status was written.
const maxPlans = 4

// +kubebuilder:rbac:groups=aiplatform.example.com,resources=aijobs,verbs=list;watch;patch;delete,namespace=system
// +kubebuilder:rbac:groups=aiplatform.example.com,resources=aijobs/status,verbs=patch,namespace=system
// +kubebuilder:rbac:groups=aiplatform.example.com,resources=aijobs/finalizers,verbs=update,namespace=system
// +kubebuilder:rbac:groups=aiplatform.example.com,resources=aijobqueues,verbs=list;watch
// +kubebuilder:rbac:groups=scheduling.k8s.io,resources=priorityclasses,verbs=get
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;create;patch;delete,namespace=system
// +kubebuilder:rbac:groups="",resources=pods/status,verbs=patch,namespace=system
// +kubebuilder:rbac:groups="",resources=services,verbs=get;list;watch;create,namespace=system
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create,namespace=system

// Reconcile brings one AIJob a step further.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	job, err := reconciling.Get[aiplatformv1alpha1.AIJob](ctx, r, request.Namespace, request.Name)
	if err != nil {
		return ctrl.Result{}, err
	}
	if job == nil {
		r.pacer.Forget(request.NamespacedName)
		r.peersLost.Forget(request.NamespacedName)
		return ctrl.Result{}, nil
	}
	again, err := r.reconcile(ctx, job)
	result, failed := reconciling.Result(again, err)
	if err == nil && isWaiting(job) {
		result.Priority = ptr.To(queueing.WaitsPriority)
	}
	return result, failed
}

// isWaiting says whether a job was seen waiting.
func isWaiting(job *aiplatformv1alpha1.AIJob) bool {
	return isNew(job) || job.Status.Phase == aiplatformv1alpha1.AIJobQueued
}

// isNew says whether the status of a job was never written. The API server says Pending then (AIJob.Status has that default).
func isNew(job *aiplatformv1alpha1.AIJob) bool {
	return job.Status.Phase == "" || job.Status.Phase == aiplatformv1alpha1.AIJobPending
}

func (r *Reconciler) reconcile(ctx context.Context, job *aiplatformv1alpha1.AIJob) (time.Duration, error) {
	for range maxPlans {
		o, err := r.observe(ctx, job)
		if err != nil {
			return 0, err
		}
		d := plan(o)
		changed := isChanged(&job.Status, &d.status)
		var failed error
		if !changed {
			var problem *failure
			problem, failed = r.apply(ctx, o, d)
			if problem != nil {
				if o, err = r.observe(ctx, job); err != nil {
					return 0, err
				}
				d.status, changed = refuse(o, problem), true
			}
			reporting.SetChildrenApplied(&d.status.Conditions, job.Generation, o.now, failed)
		}
		if job, err = r.report(ctx, o, d.status); err != nil {
			return 0, client.IgnoreNotFound(err)
		}
		if !changed {
			return d.again, failed
		}
	}
	return time.Millisecond, nil
}
