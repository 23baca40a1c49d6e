package workflow

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
)

// report writes the status when it changed, and reports the transitions by events and the log.
func (r *Reconciler) report(ctx context.Context, o observed, status *aiplatformv1alpha1.AgentWorkflowStatus) error {
	before := &o.workflow.Status
	if equality.Semantic.DeepEqual(before, status) {
		return nil
	}
	next := o.workflow.DeepCopy()
	next.Status = *status
	if err := reporting.Patch(ctx, r, o.workflow, next); err != nil {
		return err
	}
	reporting.Tell(ctx, r.Recorder, o.workflow, reporting.Transition{
		From: string(before.Phase), To: string(status.Phase), Before: before.Conditions, After: status.Conditions,
	}, eventsOf(before, status)...)
	return nil
}

func eventsOf(before, after *aiplatformv1alpha1.AgentWorkflowStatus) []reporting.Event {
	var list []reporting.Event
	for _, is := range reporting.Changed(before.Conditions, after.Conditions) {
		if is.Type == reasons.ConditionReady && is.Status == metav1.ConditionFalse {
			list = append(list, reporting.Warning(is.Reason, "Check", "%s", is.Message))
		}
	}
	if before.UID != "" && before.UID != after.UID {
		list = append(list, reporting.Normal(reasons.RestoredFromBackup, "Restore",
			"restored from a backup of the workflow with the UID %s: stages that had not ended run again", before.UID))
	}
	if after.LastSkippedTime != nil && !after.LastSkippedTime.Equal(before.LastSkippedTime) {
		list = append(list, reporting.Warning(reasons.EventStartSkipped, "Start",
			"trigger at %s skipped: previous run still active", after.LastSkippedTime.UTC().Format(time.RFC3339)))
	}
	if before.Run != after.Run {
		return append(list, reporting.Normal(reasons.EventStarted, "Start", "run %d started", after.Run))
	}
	list = append(list, stageEvents(before, after)...)
	if before.Phase == after.Phase {
		return list
	}
	switch after.Phase {
	case aiplatformv1alpha1.WorkflowSucceeded:
		list = append(list, reporting.Normal(reasons.EventCompleted, "Complete", "%s", after.Message))
	case aiplatformv1alpha1.WorkflowFailed:
		list = append(list, reporting.Warning(reasons.EventFailed, "Fail", "%s", after.Message))
	}
	return list
}

func stageEvents(before, after *aiplatformv1alpha1.AgentWorkflowStatus) []reporting.Event {
	was := map[aiplatformv1alpha1.StageName]aiplatformv1alpha1.StagePhase{}
	for i := range before.Stages {
		was[before.Stages[i].Name] = before.Stages[i].Phase
	}
	var list []reporting.Event
	for i := range after.Stages {
		switch is := &after.Stages[i]; {
		case was[is.Name] == is.Phase:
		case is.Phase == aiplatformv1alpha1.StageFailed:
			list = append(list, reporting.Warning(reasons.StageFailed, "Fail", "stage %s: %s", is.Name, is.Message))
		case is.Phase == aiplatformv1alpha1.StageSkipped:
			list = append(list, reporting.Normal(reasons.EventStageSkipped, "Skip", "stage %s: %s", is.Name, is.Message))
		}
	}
	return list
}
