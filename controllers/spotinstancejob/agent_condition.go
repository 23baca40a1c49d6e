package spotinstancejob

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/checkpointbackup"
	"github.com/dcnlab/spot-training-operator/internal/redact"
)

// setAgent says whether something takes checkpoints. A job that wants none has no such condition.
func (p *planner) setAgent(status *spotv1alpha1.SpotInstanceJobStatus) {
	set := func(is metav1.ConditionStatus, reason, message string) {
		p.set(status, reasons.ConditionCheckpointAgentAvailable, is, reason, message)
	}
	if p.job.Spec.CheckpointConfig == nil {
		meta.RemoveStatusCondition(&status.Conditions, reasons.ConditionCheckpointAgentAvailable)
		return
	}
	if !p.served {
		set(metav1.ConditionFalse, reasons.CheckpointAgentNotInstalled, "the cluster serves no CheckpointBackup (migration.dcnlab.com), so that "+
			"no checkpoints are taken and a lost replica starts from the beginning: install a checkpoint agent; it is found within seconds")
		return
	}
	if !hasOnePod(p.job) {
		set(metav1.ConditionFalse, reasons.SeveralPods, "no checkpoints are taken of a replica of several pods: "+
			"set parallelism and completions of spec.jobTemplate.spec to 1, or have the program save by itself")
		return
	}
	if i := slices.IndexFunc(p.backups, p.isSilent); i >= 0 {
		set(metav1.ConditionFalse, reasons.CheckpointAgentSilent, fmt.Sprintf(
			"nothing has begun with CheckpointBackup %s within %s: see whether the checkpoint agent runs on the node of pod %s",
			p.backups[i].Key.Name, silentAfter, p.backups[i].Spec.Pod.Name))
		return
	}
	last := p.lastEnded()
	switch {
	case last == nil && status.LastCheckpointTime != nil:
		// What was said of it stays: its CheckpointBackup is gone.
	case last == nil:
		set(metav1.ConditionUnknown, reasons.NoCheckpointYet, "CheckpointBackups are served, and none of this job has ended yet")
	case p.images(*last) != nil:
		set(metav1.ConditionTrue, reasons.CheckpointsTaken, "the last checkpoint was complete")
	default:
		set(metav1.ConditionFalse, reasons.CheckpointFailed, redact.Text(fmt.Sprintf("CheckpointBackup %s failed: %s; see the log of the checkpoint agent",
			last.Key.Name, cmp.Or(last.Status.Message, p.failureOf(*last)))))
	}
}

// failureOf says how a checkpoint failed whose agent does not.
func (p *planner) failureOf(backup checkpointbackup.Backup) string {
	switch backup.Status.Phase {
	case checkpointbackup.Failed, checkpointbackup.CompletedWithError:
		return "its phase is " + string(backup.Status.Phase)
	default:
		return fmt.Sprintf("it was still %s after %s", backup.Status.Phase, patience(backup))
	}
}

// lastEnded is the newest checkpoint that is no longer in flight; nil for none. One of a pod that was gone before the
// agent saw it says nothing of the agent.
func (p *planner) lastEnded() *checkpointbackup.Backup {
	all := slices.SortedFunc(slices.Values(p.backups), newestFirst)
	for i := range all {
		if !p.isInProgress(all[i]) && !all[i].Deleted && all[i].Status.Phase != "" {
			return &all[i]
		}
	}
	return nil
}
