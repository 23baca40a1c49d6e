package trainingjob

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// checkpointNews are the events of what changed about checkpoints from one status to the next. What is in the status is
// told once, whichever manager wrote it.
func checkpointNews(before, after *mlv1.TrainingJobStatus) []news {
	var list []news
	was, is := ptr.Deref(before.Checkpoint, mlv1.CheckpointStatus{}), ptr.Deref(after.Checkpoint, mlv1.CheckpointStatus{})
	if is.Path != "" && is.Path != was.Path && !older(is, was) {
		list = append(list, news{corev1.EventTypeNormal, "CheckpointSaved", fmt.Sprintf("checkpoint of epoch %d at %s", is.Epoch, is.Path)})
	}
	if is.RestoredFrom != "" && (is.RestoredFrom != was.RestoredFrom || is.RestoredAttempt != was.RestoredAttempt) {
		list = append(list, news{corev1.EventTypeNormal, "CheckpointRestored", "the training starts from " + is.RestoredFrom})
	}
	for _, one := range is.Skipped {
		if !slices.ContainsFunc(was.Skipped, func(s mlv1.CheckpointSkipped) bool { return sameCheckpoint(s.Path, one.Path) }) {
			list = append(list, news{corev1.EventTypeWarning, "CheckpointSkipped", fmt.Sprintf("%s cannot be used: %s", one.Path, one.Message)})
		}
	}
	list = append(list, requestNews(was.Request, is.Request)...)
	return append(list, storageNews(before, after)...)
}

// older says whether a checkpoint became the newest only because newer ones cannot be used or are gone.
func older(is, was mlv1.CheckpointStatus) bool {
	return is.Step < was.Step || is.Step == was.Step && is.Epoch < was.Epoch
}

// sameCheckpoint says whether two paths are of one checkpoint: a damaged one in a volume is renamed when a training starts.
func sameCheckpoint(a, b string) bool {
	return strings.Replace(a, "/.corrupt-", "/", 1) == strings.Replace(b, "/.corrupt-", "/", 1)
}

func requestNews(was, is *mlv1.CheckpointRequest) []news {
	if is == nil || was != nil && was.ID == is.ID && was.State == is.State {
		return nil
	}
	switch is.State {
	case mlv1.CheckpointRequestDone:
		return []news{{corev1.EventTypeNormal, "CheckpointRequestDone", fmt.Sprintf("the checkpoint for request %s is at %s", is.ID, is.Path)}}
	case mlv1.CheckpointRequestFailed:
		return []news{{corev1.EventTypeWarning, "CheckpointRequestFailed", fmt.Sprintf("request %s: %s", is.ID, is.Message)}}
	}
	return nil
}

// storageNews tell of the condition CheckpointReady while the job may run. What keeps a job from starting is told as the
// reason of its state.
func storageNews(before, after *mlv1.TrainingJobStatus) []news {
	was := ptr.Deref(meta.FindStatusCondition(before.Conditions, mlv1.ConditionCheckpointReady), metav1.Condition{})
	is := meta.FindStatusCondition(after.Conditions, mlv1.ConditionCheckpointReady)
	switch {
	case is == nil || is.Status == was.Status && is.Reason == was.Reason || after.State == mlv1.StatePending:
		return nil
	case is.Status == metav1.ConditionFalse:
		return []news{{corev1.EventTypeWarning, "CheckpointProblem", is.Reason + ": " + is.Message}}
	case was.Status == metav1.ConditionFalse:
		return []news{{corev1.EventTypeNormal, "CheckpointStorageReady", is.Message}}
	}
	return nil
}

// news is an event to tell.
type news struct{ kind, reason, note string }
