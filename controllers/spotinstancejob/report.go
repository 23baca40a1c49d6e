package spotinstancejob

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/checkpointbackup"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
	"github.com/dcnlab/spot-training-operator/internal/redact"
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
		d.again = reconciling.Sooner(d.again, problemRetry)
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

func (r *Reconciler) count(o observed, after *spotv1alpha1.SpotInstanceJobStatus) {
	for _, is := range after.JobStatuses {
		if slices.ContainsFunc(o.job.Status.JobStatuses, func(was spotv1alpha1.ReplicaStatus) bool {
			return was.Name == is.Name && is.LastCheckpointImage != "" && is.LastCheckpointImage != was.LastCheckpointImage
		}) {
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

func eventsOf(o observed, after *spotv1alpha1.SpotInstanceJobStatus) []reporting.Event {
	var list []reporting.Event
	replicas := o.replicas()
	for _, entry := range after.JobStatuses {
		if index, _, ok := parseJobName(o.job.Name, entry.Name); ok && index < len(replicas) {
			list = append(list, replicaEvents(o, replicas[index], &entry)...)
		}
	}
	before := &o.job.Status
	list = append(list, conditionEvents(before, after)...)
	if before.Phase == after.Phase {
		return list
	}
	switch after.Phase {
	case spotv1alpha1.JobRunning:
		list = append(list, reporting.Normal(reasons.EventRunning, "Run", "%d replicas run", after.ActiveReplicas))
	case spotv1alpha1.JobSucceeded:
		list = append(list, reporting.Normal(reasons.EventCompleted, "Complete", "%s", reporting.Message(after.Conditions, reasons.ConditionComplete)))
	case spotv1alpha1.JobFailed:
		list = append(list, reporting.Warning(reasons.EventFailed, "Fail", "%s", reporting.Message(after.Conditions, reasons.ConditionFailed)))
	}
	return list
}

func replicaEvents(o observed, r *replica, after *spotv1alpha1.ReplicaStatus) []reporting.Event {
	before := r.status
	if before == nil {
		before = &spotv1alpha1.ReplicaStatus{Name: after.Name}
	}
	var list []reporting.Event
	told := func() string {
		return redact.Text(fmt.Sprintf("replica %d (Job %s): %s", r.index, after.Name, o.outcomeOf(r).message))
	}
	switch {
	case after.Name != before.Name:
		from := "from the beginning"
		if r.current != nil && r.current.Annotations[annotationStartedFrom] != "" {
			from = "from checkpoint " + r.current.Annotations[annotationStartedFrom]
		}
		list = append(list, reporting.Normal(reasons.EventReplicaRestarted, "Restart", "replica %d is started again as Job %s, %s", r.index, after.Name, from))
	case after.Phase == before.Phase:
	case after.Phase == spotv1alpha1.ReplicaPreempted:
		list = append(list, reporting.Warning(reasons.EventReplicaPreempted, "Preempt", "%s", told()))
	case after.Phase == spotv1alpha1.ReplicaFailed:
		list = append(list, reporting.Warning(reasons.EventReplicaFailed, "Fail", "%s", told()))
	case after.Phase == spotv1alpha1.ReplicaPending && o.outcomeOf(r).message != "":
		list = append(list, reporting.Warning(reasons.EventReplicaRestarting, "Restart", "%s", told()))
	}
	if after.LastCheckpointImage != "" && after.LastCheckpointImage != before.LastCheckpointImage {
		list = append(list, reporting.Normal(reasons.EventCheckpointSaved, "Checkpoint", "replica %d has checkpoint %s", r.index, after.LastCheckpointImage))
	}
	return list
}

// conditionEvents are those of conditions that became False.
func conditionEvents(before, after *spotv1alpha1.SpotInstanceJobStatus) []reporting.Event {
	var list []reporting.Event
	for _, is := range reporting.Changed(before.Conditions, after.Conditions) {
		if is.Status == metav1.ConditionFalse && is.Reason != reasons.ReplicasStarting && after.Phase != spotv1alpha1.JobFailed {
			list = append(list, reporting.Warning(is.Reason, "Watch", "%s", is.Message))
		}
	}
	return list
}
