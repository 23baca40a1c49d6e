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

// teller gathers the events of a step from one status to the next.
type teller []reporting.Event

func (t *teller) normal(reason, action, format string, args ...any) {
	*t = append(*t, reporting.Normal(reason, action, format, args...))
}

func (t *teller) warning(reason, action, format string, args ...any) {
	*t = append(*t, reporting.Warning(reason, action, format, args...))
}

// eventsOf are the events of a step from the job's status to the next one.
func eventsOf(job *mlv1.TrainingJob, after *mlv1.TrainingJobStatus) []reporting.Event {
	before := &job.Status
	var t teller
	if len(before.Conditions) == 0 && build.DividesGPUs(job) {
		t.warning(reasons.EventGPUsDivided, "Create",
			"spec.resources asks for numWorkers x gpusPerWorker GPUs, which is taken as the sum over all workers: each worker gets %d", build.GpusPerWorker(job))
	}
	if before.UID != "" && before.UID != after.UID {
		t.normal(reasons.RestoredFromBackup, "Restore", "%s", reporting.Message(after.Conditions, reasons.ConditionRestored))
	}
	t.checkpoints(before, after)
	t.notices(before, after)
	if ends := stoppingCondition(after); ends != nil && stoppingCondition(before) == nil {
		t.normal(reasons.EventStopping, "Stop", "%s: %s", ends.Reason, ends.Message)
	}
	t.workers(before, after)
	t.children(before, after)
	if before.State != after.State || before.Reason != after.Reason || before.RestartCount != after.RestartCount {
		t.state(before, after)
	}
	return t
}

// state tells another state, reason or restart.
func (t *teller) state(before, after *mlv1.TrainingJobStatus) {
	if after.Reason == reasons.RequeuedAfterEdit {
		t.normal(after.Reason, "Start", "%s", waitingMessage(after))
		return
	}
	switch after.State {
	case mlv1.StateRunning:
		if before.State != mlv1.StateRunning {
			t.normal(reasons.EventRunning, "Run", "all %d workers run", after.Workers.Total)
		}
	case mlv1.StateRestarting:
		if before.RestartCount != after.RestartCount {
			t.warning(reasons.EventRestarting, "Restart", "restart %d: %s", after.RestartCount, after.FailureReason)
		} else if after.Reason != reasons.WorkersStarting {
			t.warning(after.Reason, "Start", "%s", waitingMessage(after))
		}
	case mlv1.StateCompleted:
		t.normal(reasons.EventCompleted, "Complete", "%s after %s", after.Reason, after.Duration)
	case mlv1.StateFailed:
		t.warning(reasons.EventFailed, "Fail", "%s: %s", after.Reason, after.FailureReason)
	case mlv1.StateSuspended:
		t.normal(reasons.EventSuspended, "Suspend", "%s", waitingMessage(after))
	case mlv1.StateInitializing, mlv1.StatePending:
		if after.State == mlv1.StateInitializing && after.Reason == reasons.WorkersStarting {
			t.normal(reasons.EventInitializing, "Start", "the workers are being started")
		} else {
			t.warning(after.Reason, "Start", "%s", waitingMessage(after))
		}
	}
}

// waitingMessage says what the job waits for.
func waitingMessage(status *mlv1.TrainingJobStatus) string {
	return cmp.Or(reporting.Message(status.Conditions, reasons.ConditionInitialized), status.Reason)
}

// checkpoints tells what changed about checkpoints.
func (t *teller) checkpoints(before, after *mlv1.TrainingJobStatus) {
	was, is := ptr.Deref(before.Checkpoint, mlv1.CheckpointStatus{}), ptr.Deref(after.Checkpoint, mlv1.CheckpointStatus{})
	if is.Path != "" && is.Path != was.Path && !isOlder(is, was) {
		t.normal(reasons.EventCheckpointSaved, "Checkpoint", "checkpoint of epoch %d at %s", is.Epoch, is.Path)
	}
	if is.RestoredFrom != "" && (is.RestoredFrom != was.RestoredFrom || is.RestoredAttempt != was.RestoredAttempt) {
		t.normal(reasons.EventCheckpointRestored, "Checkpoint", "the training starts from %s", is.RestoredFrom)
	}
	for _, one := range is.Skipped {
		if !slices.ContainsFunc(was.Skipped, func(s mlv1.CheckpointSkipped) bool { return sameCheckpoint(s.Path, one.Path) }) {
			t.warning(reasons.EventCheckpointSkipped, "Checkpoint", "%s cannot be used: %s", one.Path, one.Message)
		}
	}
	old, request := ptr.Deref(was.Request, mlv1.CheckpointRequest{}), ptr.Deref(is.Request, mlv1.CheckpointRequest{})
	if old.ID != request.ID || old.State != request.State {
		switch request.State {
		case mlv1.CheckpointRequestDone:
			t.normal(reasons.EventCheckpointRequestDone, "Checkpoint", "the checkpoint for request %s is at %s", request.ID, request.Path)
		case mlv1.CheckpointRequestFailed:
			t.warning(reasons.EventCheckpointRequestFailed, "Checkpoint", "request %s: %s", request.ID, request.Message)
		}
	}
	if after.State != mlv1.StatePending { // what keeps a job from starting is told as the reason of its state
		t.condition(before, after, reasons.ConditionCheckpointReady, "Checkpoint", reasons.EventCheckpointProblem, reasons.EventCheckpointStorageReady)
	}
}

// isOlder says whether a checkpoint became the newest only because newer ones cannot be used or are gone.
func isOlder(is, was mlv1.CheckpointStatus) bool {
	return is.Step < was.Step || is.Step == was.Step && is.Epoch < was.Epoch
}

// sameCheckpoint says whether two paths are of one checkpoint: a damaged one in a volume is renamed when a training starts.
func sameCheckpoint(a, b string) bool {
	return strings.Replace(a, "/.corrupt-", "/", 1) == strings.Replace(b, "/.corrupt-", "/", 1)
}

// condition tells that a condition became False, for another reason too, and that it is no longer.
func (t *teller) condition(before, after *mlv1.TrainingJobStatus, kind, action, problem, solved string) {
	was := ptr.Deref(meta.FindStatusCondition(before.Conditions, kind), metav1.Condition{})
	is := meta.FindStatusCondition(after.Conditions, kind)
	switch {
	case is == nil || is.Status == was.Status && is.Reason == was.Reason:
	case is.Status == metav1.ConditionFalse:
		t.warning(problem, action, "%s: %s", is.Reason, is.Message)
	case was.Status == metav1.ConditionFalse:
		t.normal(solved, action, "%s", is.Message)
	}
}

// children tells what could not be written, unless that is the reason of the state, which is told.
func (t *teller) children(before, after *mlv1.TrainingJobStatus) {
	for _, is := range reporting.Changed(before.Conditions, after.Conditions) {
		if is.Type == reasons.ConditionChildrenApplied && is.Status == metav1.ConditionFalse && is.Reason != after.Reason {
			t.warning(is.Reason, "Write", "%s", is.Message)
		}
	}
}

// notices tells preemption notices, and what was done about them.
func (t *teller) notices(before, after *mlv1.TrainingJobStatus) {
	t.condition(before, after, reasons.ConditionSpotCapacity, "Preempt", reasons.EventSpotCapacityMissing, reasons.EventSpotCapacityAvailable)
	was, is := ptr.Deref(before.Preemption, mlv1.PreemptionStatus{}), ptr.Deref(after.Preemption, mlv1.PreemptionStatus{})
	if nodes := newlyNoticed(was, is); len(nodes) > 0 {
		note := "taken back by the provider: " + strings.Join(nodes, ", ")
		if is.State == mlv1.PreemptionCheckpointing {
			note += "; a checkpoint is asked for (" + is.RequestID + ")"
		}
		t.warning(reasons.EventPreemptionNotice, "Preempt", "%s", clip(note, maxMessage))
	}
	switch {
	case is.State == was.State && is.Count == was.Count:
	case is.State == mlv1.PreemptionWithdrawn:
		t.normal(reasons.EventPreemptionNoticeWithdrawn, "Preempt", "%s", is.Message)
	case is.State == mlv1.PreemptionLeft && is.CheckpointPath != "":
		t.normal(reasons.EventPreemptionCheckpoint, "Preempt", "%s", is.Message)
	case is.State == mlv1.PreemptionLeft:
		t.warning(reasons.EventPreemptionWithoutCheckpoint, "Preempt", "%s", is.Message)
	}
}

// newlyNoticed names the nodes that had no notice before.
func newlyNoticed(was, is mlv1.PreemptionStatus) []string {
	var names []string
	for _, node := range is.Nodes {
		if slices.ContainsFunc(was.Nodes, func(known mlv1.NoticedNode) bool { return known.Name == node.Name }) {
			continue
		}
		words := "node " + node.Name
		if node.Deadline != nil {
			words += fmt.Sprintf(" at %s", node.Deadline.UTC().Format("15:04:05Z"))
		}
		names = append(names, words+" ("+node.Source+")")
	}
	return names
}

// workers tells those that joined and left while the training continued.
func (t *teller) workers(before, after *mlv1.TrainingJobStatus) {
	if after.State != mlv1.StateRunning {
		return
	}
	was, is := ptr.Deref(before.Workers, mlv1.WorkersStatus{}).Total, ptr.Deref(after.Workers, mlv1.WorkersStatus{}).Total
	resized := before.Workers != nil && after.Workers != nil && was != is
	all := fmt.Sprintf("all %d workers run", is)
	switch {
	case resized && after.Reason == reasons.Rescaling:
		t.normal(reasons.Rescaling, "Rescale", "from %d to %d workers, without a restart", was, is)
	case resized && before.State == mlv1.StateRunning && after.Reason == reasons.WorkersRunning:
		t.normal(reasons.Rescaled, "Rescale", "from %d to %d workers, without a restart; %s", was, is, all)
	case before.Reason == reasons.Rescaling && after.Reason == reasons.WorkersRunning:
		t.normal(reasons.Rescaled, "Rescale", "%s", all)
	case before.Reason == reasons.WorkerLost && after.Reason == reasons.WorkersRunning:
		t.normal(reasons.EventWorkerRejoined, "Run", "%s again", all)
	}
	if after.Reason == reasons.WorkerLost && (before.Reason != reasons.WorkerLost || before.FailureReason != after.FailureReason) {
		t.warning(reasons.WorkerLost, "Run", "%s", waitingMessage(after))
	}
}
