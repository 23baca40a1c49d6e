package spotinstancejob

import (
	"fmt"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/redact"
)

// nextStatus is the status that the job should have by what is observed.
func (p *planner) nextStatus() spotv1alpha1.SpotInstanceJobStatus {
	status := *p.job.Status.DeepCopy()
	status.ObservedGeneration = p.job.Generation
	status.JobStatuses, status.ActiveReplicas = nil, 0
	failedReplicas := 0
	for i, r := range p.replicas {
		result := p.outcomes[i]
		if r.running() != nil && result.kind != succeeded {
			status.ActiveReplicas++
		}
		entry := p.replicaStatus(r, result)
		if entry == nil {
			continue
		}
		status.JobStatuses = append(status.JobStatuses, *entry)
		switch entry.Phase {
		case spotv1alpha1.ReplicaPreempted:
			if !r.isCountedPreempted() && r.retiredFor() == "" {
				status.PreemptionCount++
			}
		case spotv1alpha1.ReplicaFailed:
			failedReplicas++
		}
	}
	p.lastCheckpoint(&status)
	if status.StartTime == nil && status.ActiveReplicas > 0 {
		status.StartTime = ptr.To(metav1.NewTime(p.now).Rfc3339Copy())
	}
	p.setCapacity(&status)
	p.setAgent(&status)
	p.setReady(&status)
	switch winner := p.winner(); {
	case winner != nil:
		p.succeed(&status, winner)
	case failedReplicas == len(p.replicas):
		p.fail(&status)
	default:
		status.Phase = p.phase(&status)
	}
	return status
}

// replicaStatus is one replica's; nil before its first Job is made.
func (p *planner) replicaStatus(r *replica, result outcome) *spotv1alpha1.ReplicaStatus {
	entry := spotv1alpha1.ReplicaStatus{}
	if r.status != nil {
		entry = *r.status.DeepCopy()
	}
	if r.current == nil {
		if r.status == nil {
			return nil
		}
		entry.NodeName = ""
		if entry.Phase != spotv1alpha1.ReplicaFailed {
			entry.Phase = spotv1alpha1.ReplicaPending
		}
		return &entry
	}
	if !r.isCountedPreempted() { // of a preempted one it stays what it was lost with
		entry.NodeName = ""
	}
	entry.Name, entry.RestartCount = r.current.Name, attemptOf(r.current)
	for _, pod := range r.pods {
		if pod.Spec.NodeName != "" && !r.isCountedPreempted() {
			entry.NodeName = pod.Spec.NodeName
		}
	}
	entry.Phase = replicaPhase(r, result)
	if last := p.newestComplete(r.backups, nil); last != nil {
		entry.LastCheckpointTime = ptr.To(metav1.NewTime(completionOf(last)).Rfc3339Copy())
		entry.LastCheckpointImage = p.images(*last)[p.containers()[0]]
	}
	return &entry
}

func replicaPhase(r *replica, result outcome) spotv1alpha1.ReplicaPhase {
	switch {
	case result.kind == succeeded:
		return spotv1alpha1.ReplicaSucceeded
	case result.kind == hopeless && r.retiredFor() == "":
		return spotv1alpha1.ReplicaFailed
	case r.retiredFor() == retiredPreempted, r.retiredFor() == "" && (result.kind == noticed || result.kind == lost):
		return spotv1alpha1.ReplicaPreempted
	case r.running() != nil:
		return spotv1alpha1.ReplicaRunning
	case len(r.pods) > 0 && len(r.live()) == 0 && !isJobEnded(r.current) && r.status != nil && r.status.Name == r.current.Name:
		return r.status.Phase // its pod has ended, and the Job controller has not yet reported the result
	default:
		return spotv1alpha1.ReplicaPending
	}
}

// lastCheckpoint takes the newest of all replicas. That of a replica that is no more, or whose CheckpointBackup is gone,
// still counts.
func (p *planner) lastCheckpoint(status *spotv1alpha1.SpotInstanceJobStatus) {
	for _, entry := range status.JobStatuses {
		if entry.LastCheckpointTime != nil && (status.LastCheckpointTime == nil || status.LastCheckpointTime.Before(entry.LastCheckpointTime)) {
			status.LastCheckpointTime, status.LastCheckpointImage = entry.LastCheckpointTime.DeepCopy(), entry.LastCheckpointImage
		}
	}
}

// phase of a job that has not ended.
func (p *planner) phase(status *spotv1alpha1.SpotInstanceJobStatus) spotv1alpha1.JobPhase {
	recovers := false
	for _, entry := range status.JobStatuses {
		again := entry.RestartCount > 0 && entry.Phase == spotv1alpha1.ReplicaPending && !p.isSuspended()
		recovers = recovers || again || entry.Phase == spotv1alpha1.ReplicaPreempted
	}
	switch {
	case recovers:
		return spotv1alpha1.JobRecovering
	case p.job.Spec.SpotInstanceVMRef != nil && len(p.unschedulable()) > 0:
		return spotv1alpha1.JobProvisioning
	case status.ActiveReplicas > 0:
		return spotv1alpha1.JobRunning
	default:
		return spotv1alpha1.JobPending
	}
}

func (p *planner) isSuspended() bool { return ptr.Deref(p.job.Spec.JobTemplate.Spec.Suspend, false) }

// winner is a Job that has completed; nil for none. It need not be of the newest attempt.
func (p *planner) winner() *batchv1.Job {
	for _, job := range p.jobs {
		if jobCondition(job, batchv1.JobComplete) != nil {
			return job
		}
	}
	return nil
}

// succeed writes the end of a job when one replica has completed. The others are stopped and leave the status.
func (p *planner) succeed(status *spotv1alpha1.SpotInstanceJobStatus, winner *batchv1.Job) {
	kept := status.JobStatuses[:0]
	for _, entry := range status.JobStatuses {
		if entry.Phase == spotv1alpha1.ReplicaSucceeded || entry.Name == winner.Name {
			entry.Phase = spotv1alpha1.ReplicaSucceeded
			kept = append(kept, entry)
		}
	}
	status.JobStatuses, status.ActiveReplicas, status.Phase = kept, 0, spotv1alpha1.JobSucceeded
	status.CompletionTime = ptr.To(metav1.NewTime(p.now).Rfc3339Copy())
	if at := winner.Status.CompletionTime; at != nil {
		status.CompletionTime = at.DeepCopy()
	}
	if status.StartTime == nil {
		status.StartTime = winner.Status.StartTime.DeepCopy()
	}
	p.set(status, reasons.ConditionComplete, metav1.ConditionTrue, reasons.ReplicaSucceeded,
		fmt.Sprintf("Job %s completed; stopping the other replicas", winner.Name))
	p.set(status, reasons.ConditionReady, metav1.ConditionTrue, reasons.Ready, "the job is complete")
	meta.RemoveStatusCondition(&status.Conditions, reasons.ConditionCapacityAvailable)
}

// fail writes the end of a job when every replica has failed.
func (p *planner) fail(status *spotv1alpha1.SpotInstanceJobStatus) {
	status.Phase, status.ActiveReplicas = spotv1alpha1.JobFailed, 0
	status.CompletionTime = ptr.To(metav1.NewTime(p.now).Rfc3339Copy())
	var why []string
	for i, result := range p.outcomes {
		if result.kind == hopeless {
			why = append(why, fmt.Sprintf("replica %d: %s", i, result.message))
		}
	}
	message := redact.Text("every replica has failed; " + strings.Join(why, "; "))
	p.set(status, reasons.ConditionFailed, metav1.ConditionTrue, reasons.AllReplicasFailed, message)
	p.set(status, reasons.ConditionReady, metav1.ConditionFalse, reasons.AllReplicasFailed, message)
	meta.RemoveStatusCondition(&status.Conditions, reasons.ConditionCapacityAvailable)
}
