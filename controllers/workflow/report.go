package workflow

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
)

// report writes the status when it changed, and tells of the transitions by events.
func (r *Reconciler) report(ctx context.Context, o observed, status *aiplatformv1alpha1.AgentWorkflowStatus) error {
	if equality.Semantic.DeepEqual(&o.workflow.Status, status) {
		return nil
	}
	next := o.workflow.DeepCopy()
	next.Status = *status
	// The lock makes sure that a decision is made from the newest status: a workflow must not start twice.
	lock := client.MergeFromWithOptions(o.workflow, client.MergeFromWithOptimisticLock{})
	if err := r.Status().Patch(ctx, next, lock, fieldOwner); err != nil {
		return fmt.Errorf("write the status: %w", err)
	}
	for _, n := range newsOf(&o.workflow.Status, status) {
		r.Recorder.Eventf(o.workflow, nil, n.kind, n.reason, n.action, "%s", n.note)
	}
	return nil
}

// news is an event to emit once the status is written.
type news struct{ kind, reason, action, note string }

// newsOf are the events of a step from one status to the next.
func newsOf(before, after *aiplatformv1alpha1.AgentWorkflowStatus) []news {
	var list []news
	was, is := meta.FindStatusCondition(before.Conditions, reasons.ConditionReady),
		meta.FindStatusCondition(after.Conditions, reasons.ConditionReady)
	if is != nil && is.Status == metav1.ConditionFalse && (was == nil || was.Status != is.Status || was.Reason != is.Reason) {
		list = append(list, news{corev1.EventTypeWarning, is.Reason, "Check", is.Message})
	}
	if after.LastSkippedTime != nil && !after.LastSkippedTime.Equal(before.LastSkippedTime) {
		list = append(list, news{corev1.EventTypeWarning, reasons.EventStartSkipped, "Start",
			"did not start again by what came at " + after.LastSkippedTime.UTC().Format("2006-01-02 15:04:05") + " UTC, because it still ran"})
	}
	if before.Run == after.Run {
		list = append(list, stageNews(before, after)...)
	}
	switch {
	case before.Run != after.Run:
		list = append(list, news{corev1.EventTypeNormal, reasons.EventStarted, "Start", fmt.Sprintf("run %d started", after.Run)})
	case before.Phase == after.Phase:
	case after.Phase == aiplatformv1alpha1.WorkflowSucceeded:
		list = append(list, news{corev1.EventTypeNormal, reasons.EventCompleted, "Complete", after.Message})
	case after.Phase == aiplatformv1alpha1.WorkflowFailed:
		list = append(list, news{corev1.EventTypeWarning, reasons.EventFailed, "Fail", after.Message})
	}
	return list
}

func stageNews(before, after *aiplatformv1alpha1.AgentWorkflowStatus) []news {
	var list []news
	for i := range after.Stages {
		is := &after.Stages[i]
		was := aiplatformv1alpha1.StagePending
		for j := range before.Stages {
			if before.Stages[j].Name == is.Name {
				was = before.Stages[j].Phase
			}
		}
		if was == is.Phase {
			continue
		}
		switch is.Phase {
		case aiplatformv1alpha1.StageFailed:
			list = append(list, news{corev1.EventTypeWarning, reasons.StageFailed, "Fail", fmt.Sprintf("stage %s: %s", is.Name, is.Message)})
		case aiplatformv1alpha1.StageSkipped:
			list = append(list, news{corev1.EventTypeNormal, reasons.EventStageSkipped, "Skip", fmt.Sprintf("stage %s: %s", is.Name, is.Message)})
		}
	}
	return list
}
