package spotinstancejob

import (
	"cmp"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/checkpointbackup"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
)

type replica struct {
	index int
	// current is the Job of the newest attempt; nil when there is none or it is being deleted.
	current *batchv1.Job
	// older are Jobs of earlier attempts.
	older []*batchv1.Job
	// attempts is one more than the highest attempt that is known to have been.
	attempts int32
	// pods are those of current; strays are those of any other Job that may still run.
	pods, strays []*corev1.Pod
	// orphans are the strays whose Job was deleted without them: nothing else stops them.
	orphans []*corev1.Pod
	// status is what was written of it last; nil before.
	status *spotv1alpha1.ReplicaStatus
	// backups are its checkpoints, the newest first.
	backups []checkpointbackup.Backup
}

// replicas are those that should be, in order.
func (o observed) replicas() []*replica {
	all := make([]*replica, ptr.Deref(o.job.Spec.Replicas, 2))
	for i := range all {
		all[i] = &replica{index: i}
	}
	o.distribute(all)
	return all
}

// distribute gives each replica what is its own.
func (o observed) distribute(all []*replica) {
	at := func(labels map[string]string) *replica {
		if index, ok := indexOf(labels); ok && index < len(all) {
			return all[index]
		}
		return nil
	}
	for _, job := range o.jobs {
		r := at(job.Labels)
		if r == nil {
			continue
		}
		r.attempts = max(r.attempts, attemptOf(job)+1)
		switch {
		case job.DeletionTimestamp != nil:
		case r.current == nil:
			r.current = job
		case attemptOf(job) > attemptOf(r.current):
			r.older, r.current = append(r.older, r.current), job
		default:
			r.older = append(r.older, job)
		}
	}
	for i := range o.job.Status.JobStatuses {
		status := &o.job.Status.JobStatuses[i]
		if index, attempt, ok := parseJobName(o.job.Name, status.Name); ok && index < len(all) {
			all[index].status = status
			all[index].attempts = max(all[index].attempts, attempt+1)
		}
	}
	for _, pod := range o.pods {
		r, owner := at(pod.Labels), metav1.GetControllerOf(pod)
		switch {
		case r == nil || (owner != nil && owner.Kind != "Job"):
		case owner == nil:
			if _, ofJob := pod.Labels[labelJobName]; ofJob && !podend.IsEnded(pod) {
				r.strays, r.orphans = append(r.strays, pod), append(r.orphans, pod)
			}
		case r.current != nil && owner.UID == r.current.UID:
			r.pods = append(r.pods, pod)
		case !podend.IsEnded(pod):
			r.strays = append(r.strays, pod)
		}
	}
	for _, backup := range o.backups {
		if r := at(backup.Labels); r != nil {
			r.backups = append(r.backups, backup)
		}
	}
	for _, r := range all {
		slices.SortFunc(r.pods, func(a, b *corev1.Pod) int {
			return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
		})
		slices.SortFunc(r.backups, newestFirst)
	}
}

// retiredFor is why the current Job is being stopped; empty when it is not.
func (r *replica) retiredFor() string {
	if r.current == nil {
		return ""
	}
	return r.current.Annotations[annotationRetired]
}

// isCountedPreempted says whether the status counts the current attempt among the preempted ones.
func (r *replica) isCountedPreempted() bool {
	return r.current != nil && r.status != nil && r.status.Name == r.current.Name && r.status.Phase == spotv1alpha1.ReplicaPreempted
}

// hasLeftNode says whether the pod that counts as preempted is gone, though the Job may have made another: that started from an
// old state.
func (r *replica) hasLeftNode() bool {
	if !r.isCountedPreempted() || r.status.NodeName == "" {
		return false
	}
	for _, pod := range r.pods {
		if pod.Status.Phase == corev1.PodSucceeded || (pod.Spec.NodeName == r.status.NodeName && !podend.IsEnded(pod)) {
			return false
		}
	}
	return true
}

// live are the pods of the current Job that have not ended.
func (r *replica) live() []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(r.pods), podend.IsEnded)
}

// running is the newest pod whose containers run, and that is not being stopped; nil for none.
func (r *replica) running() *corev1.Pod {
	for _, pod := range slices.Backward(r.pods) {
		if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
			return pod
		}
	}
	return nil
}

// takesCheckpoints says whether checkpoints of the replicas are wanted and possible.
func (o observed) takesCheckpoints() bool {
	return o.job.Spec.CheckpointConfig != nil && o.served && o.job.HasOnePod()
}

// isRestartedByOperator says whether the operator itself starts a replica again when its program fails: only so can that start from a
// checkpoint. Otherwise the Job controller does it.
func isRestartedByOperator(job *spotv1alpha1.SpotInstanceJob) bool {
	return job.Spec.CheckpointConfig != nil && job.HasOnePod() && job.Spec.JobTemplate.Spec.BackoffLimitPerIndex == nil &&
		job.Spec.JobTemplate.Spec.Template.Spec.RestartPolicy == corev1.RestartPolicyNever
}

func jobCondition(job *batchv1.Job, kind batchv1.JobConditionType) *batchv1.JobCondition {
	return reconciling.Find(job.Status.Conditions, func(c *batchv1.JobCondition) bool { return c.Type == kind && c.Status == corev1.ConditionTrue })
}

func isJobEnded(job *batchv1.Job) bool {
	return jobCondition(job, batchv1.JobComplete) != nil || jobCondition(job, batchv1.JobFailed) != nil
}

// isStopped says whether the Job controller makes no more pods for a Job and knows it.
func isStopped(job *batchv1.Job) bool {
	return isJobEnded(job) || (ptr.Deref(job.Spec.Suspend, false) && jobCondition(job, batchv1.JobSuspended) != nil)
}

func isEnded(status *spotv1alpha1.SpotInstanceJobStatus) bool {
	return status.Phase == spotv1alpha1.JobSucceeded || status.Phase == spotv1alpha1.JobFailed
}
