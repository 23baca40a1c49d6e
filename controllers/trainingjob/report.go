package trainingjob

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
)

// minorDelay is how long a change of counts or wording alone waits for others to be written with.
const minorDelay = 5 * time.Second

// report writes the status when it changed, and reports the transitions by events, the log and metrics. A change that is only minor it may
// postpone.
func (r *Reconciler) report(ctx context.Context, o observed, d *desired) error {
	before, status, key := &o.job.Status, &d.status, client.ObjectKeyFromObject(o.job)
	if equality.Semantic.DeepEqual(before, status) {
		r.pacer.Release(key)
		return nil
	}
	if onlyMinor(before, status) {
		if wait := r.pacer.Hold(key, minorDelay, o.now); wait > 0 {
			d.lookAgain(wait)
			return nil
		}
	}
	next := o.job.DeepCopy()
	next.Status = *status
	if err := reporting.Patch(ctx, r, o.job, next); err != nil {
		return err
	}
	r.pacer.Wrote(key, o.now)
	if !o.priceUnread {
		r.ledger.Settle(key, status.Cost, o.now)
	}
	r.count(o.job, status)
	reporting.Tell(ctx, r.Recorder, o.job, reporting.Transition{
		From: string(before.State), To: string(status.State), Before: before.Conditions, After: status.Conditions,
	}, eventsOf(o.job, status)...)
	return nil
}

// onlyMinor says whether two statuses differ in counts and wording alone.
func onlyMinor(before, after *mlv1.TrainingJobStatus) bool {
	return equality.Semantic.DeepEqual(essence(before), essence(after))
}

// essence is a status without what may be written later: running counts, and the wording of conditions.
func essence(status *mlv1.TrainingJobStatus) *mlv1.TrainingJobStatus {
	bare := status.DeepCopy()
	bare.Cost = nil
	if bare.Workers != nil {
		bare.Workers.Active, bare.Workers.Succeeded, bare.Workers.Failed = 0, 0, 0
	}
	for i := range bare.Conditions {
		bare.Conditions[i].Message = ""
	}
	return bare
}

// count counts what the step to the next status tells.
func (r *Reconciler) count(job *mlv1.TrainingJob, after *mlv1.TrainingJobStatus) {
	if len(job.Status.Conditions) == 0 {
		r.Metrics.Created(job.Namespace)
	}
	r.observeWaits(job, after)
	if job.Status.State == after.State {
		return
	}
	switch after.State {
	case mlv1.StateCompleted:
		r.Metrics.Completed(job.Namespace)
	case mlv1.StateFailed:
		r.Metrics.Failed(job.Namespace, after.Reason)
	}
}

// observeWaits counts how long a job waited to be admitted and to run, each the first time that it comes to it.
func (r *Reconciler) observeWaits(job *mlv1.TrainingJob, after *mlv1.TrainingJobStatus) {
	before, created := &job.Status, job.CreationTimestamp.Time
	if !meta.IsStatusConditionTrue(before.Conditions, reasons.ConditionAdmitted) && before.StartTime == nil {
		if admitted := meta.FindStatusCondition(after.Conditions, reasons.ConditionAdmitted); admitted != nil && admitted.Status == metav1.ConditionTrue {
			r.Metrics.Admitted(job.Namespace, admitted.LastTransitionTime.Sub(created))
		}
	}
	if before.StartTime == nil && after.StartTime != nil {
		r.Metrics.Running(job.Namespace, after.StartTime.Sub(created))
	}
}
