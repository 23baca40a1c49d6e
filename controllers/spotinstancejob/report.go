package spotinstancejob

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/checkpointbackup"
)

// problemRetry is when to try again what the API server refused.
const problemRetry = 30 * time.Second

// withProblems writes into a plan what the API server refused.
func withProblems(o observed, d *desired, problems []problem) {
	if ended(&d.status) {
		return
	}
	for _, p := range problems {
		setCondition(o, &d.status, p.condition, metav1.ConditionFalse, p.reason, p.message)
		if d.again == 0 || d.again > problemRetry {
			d.again = problemRetry
		}
	}
}

// report writes the status when it changed, and tells of the transitions by events and metrics.
func (r *Reconciler) report(ctx context.Context, o observed, status *spotv1alpha1.SpotInstanceJobStatus) error {
	if equality.Semantic.DeepEqual(&o.job.Status, status) {
		return nil
	}
	next := o.job.DeepCopy()
	next.Status = *status
	// The lock makes sure that a decision is made from the newest status: a preemption must not be counted twice.
	lock := client.MergeFromWithOptions(o.job, client.MergeFromWithOptimisticLock{})
	if err := r.Status().Patch(ctx, next, lock, fieldOwner); err != nil {
		return fmt.Errorf("write the status: %w", err)
	}
	for _, n := range newsOf(o, status) {
		r.Recorder.Eventf(o.job, nil, n.kind, n.reason, n.action, "%s", n.note)
	}
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

// requested counts a checkpoint that was asked for, and how soon after the notice.
func (r *Reconciler) requested(o observed, backup checkpointbackup.Backup) {
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
