package spotinstancejob

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/redact"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
)

// eventsOf are the events of a step from the job's status to the next one.
func eventsOf(o observed, after *spotv1alpha1.SpotInstanceJobStatus) []reporting.Event {
	var list []reporting.Event
	for _, r := range o.replicas() {
		for i := range after.JobStatuses {
			if index, _, ok := parseJobName(o.job.Name, after.JobStatuses[i].Name); ok && index == r.index {
				list = append(list, replicaEvents(o, r, &after.JobStatuses[i])...)
			}
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
	for _, kind := range []string{reasons.ConditionReady, reasons.ConditionCapacityAvailable, reasons.ConditionCheckpointAgentAvailable} {
		was, is := meta.FindStatusCondition(before.Conditions, kind), meta.FindStatusCondition(after.Conditions, kind)
		if is == nil || is.Status != metav1.ConditionFalse || (was != nil && was.Status == is.Status && was.Reason == is.Reason) ||
			is.Reason == reasons.ReplicasStarting || after.Phase == spotv1alpha1.JobFailed {
			continue
		}
		list = append(list, reporting.Warning(is.Reason, "Watch", "%s", is.Message))
	}
	return list
}
