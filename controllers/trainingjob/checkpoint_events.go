package trainingjob

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
)

// checkpointEvents are the events of what changed about checkpoints from one status to the next.
func checkpointEvents(before, after *mlv1.TrainingJobStatus) []reporting.Event {
	var list []reporting.Event
	was, is := ptr.Deref(before.Checkpoint, mlv1.CheckpointStatus{}), ptr.Deref(after.Checkpoint, mlv1.CheckpointStatus{})
	if is.Path != "" && is.Path != was.Path && !isOlder(is, was) {
		list = append(list, reporting.Normal(reasons.EventCheckpointSaved, "Checkpoint", "checkpoint of epoch %d at %s", is.Epoch, is.Path))
	}
	if is.RestoredFrom != "" && (is.RestoredFrom != was.RestoredFrom || is.RestoredAttempt != was.RestoredAttempt) {
		list = append(list, reporting.Normal(reasons.EventCheckpointRestored, "Checkpoint", "the training starts from %s", is.RestoredFrom))
	}
	for _, one := range is.Skipped {
		if !slices.ContainsFunc(was.Skipped, func(s mlv1.CheckpointSkipped) bool { return sameCheckpoint(s.Path, one.Path) }) {
			list = append(list, reporting.Warning(reasons.EventCheckpointSkipped, "Checkpoint", "%s cannot be used: %s", one.Path, one.Message))
		}
	}
	list = append(list, requestEvents(was.Request, is.Request)...)
	return append(list, storageEvents(before, after)...)
}

// isOlder says whether a checkpoint became the newest only because newer ones cannot be used or are gone.
func isOlder(is, was mlv1.CheckpointStatus) bool {
	return is.Step < was.Step || is.Step == was.Step && is.Epoch < was.Epoch
}

// sameCheckpoint says whether two paths are of one checkpoint: a damaged one in a volume is renamed when a training starts.
func sameCheckpoint(a, b string) bool {
	return strings.Replace(a, "/.corrupt-", "/", 1) == strings.Replace(b, "/.corrupt-", "/", 1)
}

func requestEvents(was, is *mlv1.CheckpointRequest) []reporting.Event {
	if is == nil || was != nil && was.ID == is.ID && was.State == is.State {
		return nil
	}
	switch is.State {
	case mlv1.CheckpointRequestDone:
		return []reporting.Event{reporting.Normal(reasons.EventCheckpointRequestDone, "Checkpoint", "the checkpoint for request %s is at %s", is.ID, is.Path)}
	case mlv1.CheckpointRequestFailed:
		return []reporting.Event{reporting.Warning(reasons.EventCheckpointRequestFailed, "Checkpoint", "request %s: %s", is.ID, is.Message)}
	}
	return nil
}

// storageEvents report the condition CheckpointReady while the job may run. What keeps a job from starting is told as the
// reason of its state.
func storageEvents(before, after *mlv1.TrainingJobStatus) []reporting.Event {
	if after.State == mlv1.StatePending {
		return nil
	}
	return conditionEvents(before, after, reasons.ConditionCheckpointReady, "Checkpoint", reasons.EventCheckpointProblem, reasons.EventCheckpointStorageReady)
}

// conditionEvents report a condition that became False, for another reason too, and that it is no longer.
func conditionEvents(before, after *mlv1.TrainingJobStatus, kind, action, problem, solved string) []reporting.Event {
	was := ptr.Deref(meta.FindStatusCondition(before.Conditions, kind), metav1.Condition{})
	is := meta.FindStatusCondition(after.Conditions, kind)
	switch {
	case is == nil || is.Status == was.Status && is.Reason == was.Reason:
		return nil
	case is.Status == metav1.ConditionFalse:
		return []reporting.Event{reporting.Warning(problem, action, "%s: %s", is.Reason, is.Message)}
	case was.Status == metav1.ConditionFalse:
		return []reporting.Event{reporting.Normal(solved, action, "%s", is.Message)}
	}
	return nil
}
