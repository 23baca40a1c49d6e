package trainingjob

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
)

// eventsOf are the events of a step from the job's status to the next one.
func eventsOf(job *mlv1.TrainingJob, after *mlv1.TrainingJobStatus) []reporting.Event {
	before := &job.Status
	var list []reporting.Event
	if len(before.Conditions) == 0 && build.DividesGPUs(job) {
		list = append(list, reporting.Warning(reasons.EventGPUsDivided, "Create",
			"spec.resources asks for numWorkers x gpusPerWorker GPUs, which is taken as the sum over all workers: each worker gets %d", build.GpusPerWorker(job)))
	}
	list = append(list, checkpointEvents(before, after)...)
	list = append(list, noticeEvents(before, after)...)
	if ends := stoppingCondition(after); ends != nil && stoppingCondition(before) == nil {
		list = append(list, reporting.Normal(reasons.EventStopping, "Stop", "%s: %s", ends.Reason, ends.Message))
	}
	list = append(list, elasticEvents(before, after)...)
	if before.State != after.State || before.Reason != after.Reason || before.RestartCount != after.RestartCount {
		list = append(list, stateEvents(before, after)...)
	}
	return list
}

// stateEvents are the events of another state, reason or restart.
func stateEvents(before, after *mlv1.TrainingJobStatus) []reporting.Event {
	one := func(event reporting.Event) []reporting.Event { return []reporting.Event{event} }
	switch after.State {
	case mlv1.StateRunning:
		if before.State != mlv1.StateRunning {
			return one(reporting.Normal(reasons.EventRunning, "Run", "all %d workers run", after.Workers.Total))
		}
	case mlv1.StateRestarting:
		if before.RestartCount != after.RestartCount {
			return one(reporting.Warning(reasons.EventRestarting, "Restart", "restart %d: %s", after.RestartCount, after.FailureReason))
		}
		if after.Reason != reasons.WorkersStarting {
			return one(reporting.Warning(after.Reason, "Start", "%s", waitingMessage(after)))
		}
	case mlv1.StateCompleted:
		return one(reporting.Normal(reasons.EventCompleted, "Complete", "%s after %s", after.Reason, after.Duration))
	case mlv1.StateFailed:
		return one(reporting.Warning(reasons.EventFailed, "Fail", "%s: %s", after.Reason, after.FailureReason))
	case mlv1.StateSuspended:
		return one(reporting.Normal(reasons.EventSuspended, "Suspend", "%s", waitingMessage(after)))
	case mlv1.StateInitializing:
		if after.Reason == reasons.WorkersStarting {
			return one(reporting.Normal(reasons.EventInitializing, "Start", "the workers are being started"))
		}
		return one(reporting.Warning(after.Reason, "Start", "%s", waitingMessage(after)))
	case mlv1.StatePending:
		return one(reporting.Warning(after.Reason, "Start", "%s", waitingMessage(after)))
	}
	return nil
}

// waitingMessage says what the job waits for.
func waitingMessage(status *mlv1.TrainingJobStatus) string {
	return cmp.Or(reporting.Message(status.Conditions, reasons.ConditionInitialized), status.Reason)
}

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

// noticeEvents are the events of preemption notices, and of what was done about them, from one status to the next.
func noticeEvents(before, after *mlv1.TrainingJobStatus) []reporting.Event {
	list := conditionEvents(before, after, reasons.ConditionSpotCapacity, "Preempt", reasons.EventSpotCapacityMissing, reasons.EventSpotCapacityAvailable)
	is := after.Preemption
	if is == nil {
		return list
	}
	was := ptr.Deref(before.Preemption, mlv1.PreemptionStatus{})
	if told := newlyNoticed(was, *is); len(told) > 0 {
		note := "taken back by the provider: " + strings.Join(told, ", ")
		if is.State == mlv1.PreemptionCheckpointing {
			note += "; a checkpoint is asked for (" + is.RequestID + ")"
		}
		list = append(list, reporting.Warning(reasons.EventPreemptionNotice, "Preempt", "%s", clip(note, maxMessage)))
	}
	if is.State == was.State && is.Count == was.Count {
		return list
	}
	switch {
	case is.State == mlv1.PreemptionWithdrawn:
		list = append(list, reporting.Normal(reasons.EventPreemptionNoticeWithdrawn, "Preempt", "%s", is.Message))
	case is.State == mlv1.PreemptionLeft && is.CheckpointPath != "":
		list = append(list, reporting.Normal(reasons.EventPreemptionCheckpoint, "Preempt", "%s", is.Message))
	case is.State == mlv1.PreemptionLeft:
		list = append(list, reporting.Warning(reasons.EventPreemptionWithoutCheckpoint, "Preempt", "%s", is.Message))
	}
	return list
}

// newlyNoticed names the nodes that had no notice before.
func newlyNoticed(was, is mlv1.PreemptionStatus) []string {
	known := map[string]bool{}
	for _, node := range was.Nodes {
		known[node.Name] = true
	}
	var told []string
	for _, node := range is.Nodes {
		if known[node.Name] {
			continue
		}
		words := "node " + node.Name
		if node.Deadline != nil {
			words += fmt.Sprintf(" at %s", node.Deadline.UTC().Format("15:04:05Z"))
		}
		told = append(told, words+" ("+node.Source+")")
	}
	return told
}

// elasticEvents are the events of workers that joined and left while the training continued.
func elasticEvents(before, after *mlv1.TrainingJobStatus) (list []reporting.Event) {
	if after.State != mlv1.StateRunning {
		return nil
	}
	resized := before.Workers != nil && after.Workers != nil && before.Workers.Total != after.Workers.Total
	went := before.State == mlv1.StateRunning
	all := ""
	if after.Workers != nil {
		all = fmt.Sprintf("all %d workers run", after.Workers.Total)
	}
	switch {
	case resized && after.Reason == reasons.Rescaling:
		list = append(list, reporting.Normal(reasons.Rescaling, "Rescale",
			"from %d to %d workers, without a restart", before.Workers.Total, after.Workers.Total))
	case resized && went && after.Reason == reasons.WorkersRunning:
		list = append(list, reporting.Normal(reasons.Rescaled, "Rescale",
			"from %d to %d workers, without a restart; %s", before.Workers.Total, after.Workers.Total, all))
	case before.Reason == reasons.Rescaling && after.Reason == reasons.WorkersRunning:
		list = append(list, reporting.Normal(reasons.Rescaled, "Rescale", "%s", all))
	case before.Reason == reasons.WorkerLost && after.Reason == reasons.WorkersRunning:
		list = append(list, reporting.Normal(reasons.EventWorkerRejoined, "Run", "%s again", all))
	}
	if after.Reason == reasons.WorkerLost && (before.Reason != reasons.WorkerLost || before.FailureReason != after.FailureReason) {
		list = append(list, reporting.Warning(reasons.WorkerLost, "Run", "%s", waitingMessage(after)))
	}
	return list
}
