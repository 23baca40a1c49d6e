package spotinstancejob

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/redact"
)

// news is an event to emit once the status is written.
type news struct{ kind, reason, action, note string }

// newsOf are the events of a step from the job's status to the next one.
func newsOf(o observed, after *spotv1alpha1.SpotInstanceJobStatus) []news {
	var list []news
	for _, r := range o.replicas() {
		for i := range after.JobStatuses {
			if index, _, ok := parseJobName(o.job.Name, after.JobStatuses[i].Name); ok && index == r.index {
				list = append(list, replicaNews(o, r, &after.JobStatuses[i])...)
			}
		}
	}
	before := &o.job.Status
	list = append(list, conditionNews(before, after)...)
	if before.Phase == after.Phase {
		return list
	}
	switch after.Phase {
	case spotv1alpha1.JobRunning:
		list = append(list, news{corev1.EventTypeNormal, reasons.EventRunning, "Run", fmt.Sprintf("%d replicas run", after.ActiveReplicas)})
	case spotv1alpha1.JobSucceeded:
		list = append(list, news{corev1.EventTypeNormal, reasons.EventCompleted, "Complete", messageOf(after, reasons.ConditionComplete)})
	case spotv1alpha1.JobFailed:
		list = append(list, news{corev1.EventTypeWarning, reasons.EventFailed, "Fail", messageOf(after, reasons.ConditionFailed)})
	}
	return list
}

func replicaNews(o observed, r *replica, after *spotv1alpha1.ReplicaStatus) []news {
	before := r.status
	if before == nil {
		before = &spotv1alpha1.ReplicaStatus{Name: after.Name}
	}
	var list []news
	told := func() string {
		return redact.Text(fmt.Sprintf("replica %d (Job %s): %s", r.index, after.Name, o.judge(r).message))
	}
	switch {
	case after.Name != before.Name:
		from := "from the beginning"
		if r.current != nil && r.current.Annotations[annotationStartedFrom] != "" {
			from = "from checkpoint " + r.current.Annotations[annotationStartedFrom]
		}
		list = append(list, news{corev1.EventTypeNormal, reasons.EventReplicaRestarted, "Restart",
			fmt.Sprintf("replica %d starts again as Job %s, %s", r.index, after.Name, from)})
	case after.Phase == before.Phase:
	case after.Phase == spotv1alpha1.ReplicaPreempted:
		list = append(list, news{corev1.EventTypeWarning, reasons.EventReplicaPreempted, "Preempt", told()})
	case after.Phase == spotv1alpha1.ReplicaFailed:
		list = append(list, news{corev1.EventTypeWarning, reasons.EventReplicaFailed, "Fail", told()})
	case after.Phase == spotv1alpha1.ReplicaPending && o.judge(r).message != "":
		list = append(list, news{corev1.EventTypeWarning, reasons.EventReplicaRestarting, "Restart", told()})
	}
	if after.LastCheckpointImage != "" && after.LastCheckpointImage != before.LastCheckpointImage {
		list = append(list, news{corev1.EventTypeNormal, reasons.EventCheckpointSaved, "Checkpoint",
			fmt.Sprintf("replica %d has checkpoint %s", r.index, after.LastCheckpointImage)})
	}
	return list
}

// conditionNews tells what went wrong with what the job needs.
func conditionNews(before, after *spotv1alpha1.SpotInstanceJobStatus) []news {
	var list []news
	for _, kind := range []string{reasons.ConditionReady, reasons.ConditionCapacityAvailable, reasons.ConditionCheckpointAgentAvailable} {
		was, is := meta.FindStatusCondition(before.Conditions, kind), meta.FindStatusCondition(after.Conditions, kind)
		if is == nil || is.Status != metav1.ConditionFalse || (was != nil && was.Status == is.Status && was.Reason == is.Reason) ||
			is.Reason == reasons.ReplicasStarting || after.Phase == spotv1alpha1.JobFailed {
			continue
		}
		list = append(list, news{corev1.EventTypeWarning, is.Reason, "Watch", is.Message})
	}
	return list
}

func messageOf(status *spotv1alpha1.SpotInstanceJobStatus, condition string) string {
	if c := meta.FindStatusCondition(status.Conditions, condition); c != nil {
		return c.Message
	}
	return ""
}
