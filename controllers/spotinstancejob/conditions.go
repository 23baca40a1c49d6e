package spotinstancejob

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/checkpointbackup"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
	"github.com/dcnlab/spot-training-operator/internal/redact"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
)

func (p *planner) set(status *spotv1alpha1.SpotInstanceJobStatus, kind string, is metav1.ConditionStatus, reason, message string) {
	reporting.Set(&status.Conditions, p.job.Generation, p.now, kind, is, reason, message)
}

// setReady says whether what the spec refers to exists.
func (p *planner) setReady(status *spotv1alpha1.SpotInstanceJobStatus) {
	ref := p.job.Spec.SpotInstanceVMRef
	switch {
	case p.secretProblem != "":
		p.set(status, reasons.ConditionReady, metav1.ConditionFalse, reasons.SecretNotFound, p.secretProblem)
		p.lookAgain(secretRetry)
	case ref != nil && p.vm == nil:
		p.set(status, reasons.ConditionReady, metav1.ConditionFalse, reasons.SpotInstanceVMNotFound, fmt.Sprintf(
			"spec.spotInstanceVMRef: SpotInstanceVM %s does not exist in namespace %s, so that no instance is created when a replica finds no room: "+
				"create it, or correct the name", ref.Name, p.job.Namespace))
	case p.isSuspended():
		p.set(status, reasons.ConditionReady, metav1.ConditionTrue, reasons.Suspended,
			"the replicas are stopped, because spec.jobTemplate.spec.suspend is true")
	default:
		p.set(status, reasons.ConditionReady, metav1.ConditionTrue, reasons.Ready, "the replicas are kept running")
	}
}

// unschedulable are the pods for which the scheduler finds no room.
func (p *planner) unschedulable() []*corev1.Pod {
	var list []*corev1.Pod
	for _, r := range p.replicas {
		for _, pod := range r.live() {
			if podend.Unschedulable(pod) != nil {
				list = append(list, pod)
			}
		}
	}
	return list
}

// silent is a pod that no scheduler has looked at in time; nil for none.
func (p *planner) silent() *corev1.Pod {
	for _, r := range p.replicas {
		for _, pod := range r.live() {
			switch due := podend.SchedulerDue(pod); {
			case due.IsZero():
			case p.now.Before(due):
				p.lookAgain(due.Sub(p.now))
			default:
				return pod
			}
		}
	}
	return nil
}

// unplaced are the replicas without a node that have not failed.
func (p *planner) unplaced() []string {
	var list []string
	for i, r := range p.replicas {
		placed := p.outcomes[i].kind == hopeless || p.outcomes[i].kind == succeeded ||
			r.current == nil && r.status != nil && r.status.Phase == spotv1alpha1.ReplicaFailed
		for _, pod := range r.live() {
			placed = placed || pod.Spec.NodeName != ""
		}
		if !placed {
			list = append(list, strconv.Itoa(i))
		}
	}
	return list
}

// setCapacity says whether every replica has a node, and what is done about it.
func (p *planner) setCapacity(status *spotv1alpha1.SpotInstanceJobStatus) {
	set := func(is metav1.ConditionStatus, reason, message string) {
		p.set(status, reasons.ConditionCapacityAvailable, is, reason, message)
	}
	unplaced := p.unplaced()
	who := "replica " + strings.Join(unplaced, ", ")
	if len(unplaced) > 1 {
		who = "replicas " + strings.Join(unplaced, ", ")
	}
	waiting, ref := p.unschedulable(), p.job.Spec.SpotInstanceVMRef
	switch {
	case p.isSuspended():
		set(metav1.ConditionUnknown, reasons.Suspended, "scheduling paused: spec.jobTemplate.spec.suspend is true")
	case len(unplaced) == 0:
		set(metav1.ConditionTrue, reasons.ReplicasPlaced, "every replica has a node")
	case p.silent() != nil:
		pod := p.silent()
		set(metav1.ConditionFalse, reasons.SchedulerSilent, fmt.Sprintf("pod %s of %s: %s, or correct schedulerName in spec.jobTemplate",
			pod.Name, who, podend.SilentScheduler(pod)))
	case len(waiting) == 0:
		set(metav1.ConditionFalse, reasons.ReplicasStarting, "the pod of "+who+" is not placed yet")
	case ref == nil:
		set(metav1.ConditionFalse, reasons.Unschedulable, fmt.Sprintf(
			"%s cannot be scheduled: %s; free resources, or name a SpotInstanceVM in spec.spotInstanceVMRef, which then creates instances",
			who, podend.Unschedulable(waiting[0]).Message))
	case p.vm == nil:
		set(metav1.ConditionFalse, reasons.SpotInstanceVMNotFound, fmt.Sprintf(
			"%s cannot be scheduled, and SpotInstanceVM %s does not exist: create it, or correct spec.spotInstanceVMRef", who, ref.Name))
	default:
		if told := p.vmProblem(); told != nil {
			set(metav1.ConditionFalse, told.Reason, fmt.Sprintf("%s waits for an instance; SpotInstanceVM %s: %s", who, ref.Name, told.Message))
			return
		}
		set(metav1.ConditionFalse, reasons.Provisioning, fmt.Sprintf(
			"%s waits for an instance of SpotInstanceVM %s, which is being created or joins the cluster", who, ref.Name))
	}
}

// vmProblem is the condition of the SpotInstanceVM that says why there are no instances; nil for none.
func (p *planner) vmProblem() *metav1.Condition {
	for _, kind := range []string{reasons.ConditionAllowed, reasons.ConditionCredentialsValid, reasons.ConditionCapacityAvailable, reasons.ConditionReady} {
		if meta.IsStatusConditionFalse(p.vm.Status.Conditions, kind) {
			return meta.FindStatusCondition(p.vm.Status.Conditions, kind)
		}
	}
	return nil
}

// setAgent says whether something takes checkpoints. A job that wants none has no such condition.
func (p *planner) setAgent(status *spotv1alpha1.SpotInstanceJobStatus) {
	set := func(is metav1.ConditionStatus, reason, message string) {
		p.set(status, reasons.ConditionCheckpointAgentAvailable, is, reason, message)
	}
	silent, last := slices.IndexFunc(p.backups, p.isSilent), p.lastEnded()
	switch {
	case p.job.Spec.CheckpointConfig == nil:
		meta.RemoveStatusCondition(&status.Conditions, reasons.ConditionCheckpointAgentAvailable)
	case !p.served:
		set(metav1.ConditionFalse, reasons.CheckpointAgentNotInstalled, "the cluster serves no CheckpointBackup (migration.dcnlab.com), so that "+
			"no checkpoints are taken and a lost replica starts from the beginning: install a checkpoint agent; it is found within seconds")
	case !p.job.HasOnePod():
		set(metav1.ConditionFalse, reasons.SeveralPods, "no checkpoints are taken of a replica of several pods: "+
			"set parallelism and completions of spec.jobTemplate.spec to 1, or have the program save by itself")
	case silent >= 0:
		set(metav1.ConditionFalse, reasons.CheckpointAgentSilent, fmt.Sprintf(
			"nothing has begun with CheckpointBackup %s within %s: see whether the checkpoint agent runs on the node of pod %s",
			p.backups[silent].Key.Name, silentAfter, p.backups[silent].Spec.Pod.Name))
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
	return reconciling.Find(slices.SortedFunc(slices.Values(p.backups), newestFirst), func(backup *checkpointbackup.Backup) bool {
		return !p.isInProgress(*backup) && !backup.Deleted && backup.Status.Phase != ""
	})
}
