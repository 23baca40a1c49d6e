package aijob

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
)

// kindAIJob is the kind of the jobs.
const kindAIJob = "AIJob"

// attemptOf is the number of the job's present try, from 0. It grows whenever the job loses its place or is tried again, and never
// goes back, so that pods of different tries have different names.
func attemptOf(status *aiplatformv1alpha1.AIJobStatus) int32 {
	return status.RetryCount + status.PreemptionCount
}

// podName is the name of a member's pod.
func podName(job string, member, attempt int32) string {
	return fmt.Sprintf("%s-%d-%d", job, member, attempt)
}

// hostName is the name by which the members of a gang find one another. It is the same in every try.
func hostName(job string, member int32) string { return fmt.Sprintf("%s-%d", job, member) }

// gangServiceName is the name of the headless Service of a gang.
func gangServiceName(job string) string { return job + "-members" }

// number in a label of a pod; false for a pod without one.
func number(pod *corev1.Pod, label string) (int32, bool) {
	value, err := strconv.ParseInt(pod.Labels[label], 10, 32)
	return int32(value), err == nil && value >= 0
}

// membersOf is the number of pods that a job has.
func membersOf(job *aiplatformv1alpha1.AIJob) int32 {
	if isGang(job) {
		return max(job.Spec.Gang.MinMembers, 1)
	}
	return 1
}

func isGang(job *aiplatformv1alpha1.AIJob) bool { return ptr.Deref(job.Spec.Gang.Enabled, false) }

// nameOf is the name of a member's pod in the present try.
func nameOf(job *aiplatformv1alpha1.AIJob, member int32) string {
	return podName(job.Name, member, attemptOf(&job.Status))
}
