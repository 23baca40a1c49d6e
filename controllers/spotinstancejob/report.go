package spotinstancejob

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/checkpointbackup"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
)

// problemRetry is when to try again what the API server refused.
const problemRetry = 30 * time.Second

// withProblems writes into a plan what the API server refused.
func withProblems(o observed, d *desired, problems []problem) {
	if isEnded(&d.status) {
		return
	}
	for _, p := range problems {
		reporting.Set(&d.status.Conditions, o.job.Generation, o.now, p.condition, metav1.ConditionFalse, p.reason, p.message)
		if d.again == 0 || d.again > problemRetry {
			d.again = problemRetry
		}
	}
}

// report writes the status when it changed, and tells the transitions by events, the log and metrics.
func (r *Reconciler) report(ctx context.Context, o observed, status *spotv1alpha1.SpotInstanceJobStatus) error {
	if equality.Semantic.DeepEqual(&o.job.Status, status) {
		return nil
	}
	next := o.job.DeepCopy()
	next.Status = *status
	if err := reporting.Patch(ctx, r, o.job, next); err != nil {
		return err
	}
	reporting.Tell(ctx, r.Recorder, o.job, reporting.Transition{
		From: string(o.job.Status.Phase), To: string(status.Phase), Before: o.job.Status.Conditions, After: status.Conditions,
	}, eventsOf(o, status)...)
	r.count(o, status)
	return nil
}

// count counts what the step to the next status tells.
func (r *Reconciler) count(o observed, after *spotv1alpha1.SpotInstanceJobStatus) {
	before := map[string]spotv1alpha1.ReplicaStatus{}
	for _, entry := range o.job.Status.JobStatuses {
		before[entry.Name] = entry
	}
	for _, entry := range after.JobStatuses {
		was, known := before[entry.Name]
		if known && entry.LastCheckpointImage != "" && entry.LastCheckpointImage != was.LastCheckpointImage {
			r.Metrics.CheckpointCompleted(o.job.Namespace)
		}
	}
}

// countRequest counts a checkpoint that was requested, and how soon after the notice.
func (r *Reconciler) countRequest(o observed, backup checkpointbackup.Backup) {
	saves := backup.Labels[labelSaves] != ""
	r.Metrics.CheckpointRequested(o.job.Namespace, saves)
	if !saves {
		return
	}
	if pod := o.pod(backup.Spec.Pod.Name); pod != nil {
		if n := o.nodes[pod.Spec.NodeName]; n != nil && n.notice != nil {
			r.Metrics.NoticeAnswered(o.job.Namespace, r.Clock.Since(n.notice.Time))
		}
	}
}
