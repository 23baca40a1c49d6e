package spotinstancejob

import (
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/nodenotice"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
)

// outcomeKind says how an attempt continues or ended.
type outcomeKind int

const (
	// active: it runs, or will.
	active outcomeKind = iota
	// noticed: its node is being taken back, and it still runs there.
	noticed
	// lost: it was lost with its node, or evicted from it.
	lost
	// vanished: it was deleted, or refused by a kubelet. It is started again, and does not count as failed.
	vanished
	// unstartable: it cannot be started from its checkpoint.
	unstartable
	// failed: its program failed, and may be started again.
	failed
	// hopeless: its program failed, and is not started again.
	hopeless
	// succeeded: its Job is complete.
	succeeded
)

// outcome says how an attempt continues or ended, and why.
type outcome struct {
	kind outcomeKind
	// message says how it was lost or failed.
	message string
	// deadline is when the node goes.
	deadline time.Time
	// undated: the notice does not say when it came, so that its deadline is counted from now.
	undated bool
	// at is when it failed.
	at time.Time
	// badStart: it failed so soon after it had started from a checkpoint that this may be the reason.
	badStart bool
}

const (
	// lostAfter is how long after the deadline of a provider's notice a node that no longer answers counts as gone.
	lostAfter = 30 * time.Second
	// startPatience is how long a container may fail to be started from a checkpoint.
	startPatience = 2 * time.Minute
	// soon after a start is when a failure is blamed on the checkpoint.
	soon = time.Minute
)

// isLost says whether a node surely runs nothing any more. One that merely does not answer may still run its pods. One
// that the provider said it takes back at a certain time, and that has not answered since, does not.
func (n *node) isLost(now time.Time) bool {
	switch {
	case n == nil:
		return false
	case n.gone || n.outOfService:
		return true
	case n.notice == nil || n.ready:
		return false
	}
	surely := n.notice.Source == nodenotice.MetadataServer || n.notice.Source == nodenotice.ComputeOperation
	return surely && now.After(n.notice.Deadline.Add(lostAfter))
}

// outcomeOf judges the current attempt of a replica.
func (o observed) outcomeOf(r *replica) outcome {
	if r.current == nil {
		return outcome{kind: vanished}
	}
	if jobCondition(r.current, batchv1.JobComplete) != nil {
		return outcome{kind: succeeded}
	}
	failure := jobCondition(r.current, batchv1.JobFailed)
	if !o.job.HasOnePod() { // the Job controller replaces its pods
		if failure != nil {
			return outcome{kind: hopeless, message: failure.Reason + ": " + failure.Message}
		}
		return outcome{}
	}
	if failure != nil && len(r.live()) == 0 {
		return o.failedOutcome(r, failure)
	}
	for _, pod := range r.pods {
		if found := o.podOutcome(pod); found.kind != active {
			return found
		}
	}
	if r.hasLeftNode() {
		return outcome{kind: lost, message: "its pod has left node " + r.status.NodeName + ", which was being taken back"}
	}
	if failure == nil && o.cannotStart(r) {
		return outcome{kind: unstartable, message: "no container could be started from checkpoint " + r.current.Annotations[annotationStartedFrom]}
	}
	return outcome{}
}

// podOutcome says whether a pod is or will be lost to something outside the training.
func (o observed) podOutcome(pod *corev1.Pod) outcome {
	n := o.nodes[pod.Spec.NodeName]
	if podend.IsEnded(pod) {
		if why := disruption(pod); why != "" && pod.Status.Phase == corev1.PodFailed {
			return outcome{kind: lost, message: fmt.Sprintf("pod %s was lost: %s", pod.Name, why)}
		}
		return outcome{}
	}
	switch why := disruption(pod); {
	case n.isLost(o.now):
		return outcome{kind: lost, message: fmt.Sprintf("node %s of pod %s is gone", pod.Spec.NodeName, pod.Name)}
	case n != nil && n.notice != nil:
		return outcome{
			kind: noticed, deadline: n.notice.Deadline, undated: n.notice.Time.Equal(o.now),
			message: fmt.Sprintf("node %s of pod %s is being taken back (%s: %s)", pod.Spec.NodeName, pod.Name, n.notice.Source, n.notice.Detail),
		}
	case why != "" && pod.DeletionTimestamp != nil:
		return outcome{kind: lost, message: fmt.Sprintf("pod %s is being evicted from its node: %s", pod.Name, why)}
	}
	return outcome{}
}

// program is the container whose end is that of a pod: the first that failed, of init containers too.
func program(pod *corev1.Pod) *podend.Program {
	p := &podend.Program{Remedies: map[string]string{
		reasons.OutOfMemory:          "raise the memory limit in spec.jobTemplate",
		reasons.StorageLimitExceeded: "raise the ephemeral-storage limit in spec.jobTemplate",
	}}
	if status := failedContainer(pod); status != nil {
		p.Container = status.Name
	}
	return p
}

// disruption is why Kubernetes took a pod away; empty when it did not. A pod that the kubelet evicted counts as failed, and one that it
// refused has not started.
func disruption(pod *corev1.Pod) string {
	reason, detail := program(pod).Loss(pod)
	if reason == reasons.NodePressure || reason == reasons.NodeRefused {
		return ""
	}
	return detail
}

func (o observed) failedOutcome(r *replica, failure *batchv1.JobCondition) outcome {
	if r.isCountedPreempted() {
		return outcome{kind: lost, message: "it ended while its node was being taken back"}
	}
	for _, pod := range r.pods {
		if found := o.podOutcome(pod); found.kind == lost {
			return found
		}
	}
	at := failure.LastTransitionTime.Time
	if failure.Reason == batchv1.JobReasonDeadlineExceeded {
		return outcome{kind: hopeless, at: at, message: failure.Reason + ": " + failure.Message}
	}
	if slices.ContainsFunc(r.pods, func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodSucceeded }) {
		return outcome{kind: succeeded} // one that was outlived: its Job counts how the other containers ended
	}
	pod := failedPod(r.pods)
	if pod == nil {
		return outcome{kind: vanished, at: at, message: "its pod was deleted or refused by its node"}
	}
	evicted := failure.Reason == batchv1.JobReasonPodFailurePolicy && isEvictedForPressure(pod)
	found := outcome{kind: hopeless, at: at, message: failureMessage(pod), badStart: !evicted && o.isBadStart(r, pod)}
	if failure.Reason != batchv1.JobReasonBackoffLimitExceeded && !evicted {
		found.message = failure.Reason + ": " + found.message
		return found
	}
	if (isRestartedByOperator(o.job) || evicted) && failuresBefore(r.current) < backoffLimit(o) {
		found.kind = failed
	}
	return found
}

// isEvictedForPressure says whether the kubelet evicted a pod because its node was short of a resource. The first rule of a replica's
// Job ends it for that at once; it counts as a failure, and may pass.
func isEvictedForPressure(pod *corev1.Pod) bool {
	reason, _ := program(pod).Loss(pod)
	return reason == reasons.NodePressure && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue
	})
}

// backoffLimit is how often a replica is started again after a failure, as for a Job.
func backoffLimit(o observed) int32 { return ptr.Deref(o.job.Spec.JobTemplate.Spec.BackoffLimit, 6) }

// failedPod is the newest pod whose program failed.
func failedPod(pods []*corev1.Pod) *corev1.Pod {
	for _, pod := range slices.Backward(pods) {
		if pod.Status.Phase == corev1.PodFailed && (pod.Status.Reason == "Evicted" || failedContainer(pod) != nil) {
			return pod
		}
	}
	return nil
}

// failedContainer is the first container that failed; nil when none did.
func failedContainer(pod *corev1.Pod) *corev1.ContainerStatus {
	all := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
	return reconciling.Find(all, func(status *corev1.ContainerStatus) bool {
		return status.State.Terminated != nil && status.State.Terminated.ExitCode != 0
	})
}

func failureMessage(pod *corev1.Pod) string {
	who := "pod " + pod.Name
	if status := failedContainer(pod); status != nil {
		who = "container " + status.Name + " of " + who
	}
	return program(pod).EndOf(pod, who).Message
}

// isBadStart says whether the pod failed so soon after its start from a checkpoint that this may be the reason.
func (o observed) isBadStart(r *replica, pod *corev1.Pod) bool {
	status := failedContainer(pod)
	if r.current.Annotations[annotationStartedFrom] == "" || status == nil {
		return false
	}
	end := status.State.Terminated
	return end.Reason == "StartError" || end.Reason == "ContainerCannotRun" || end.FinishedAt.Sub(end.StartedAt.Time) < soon
}

// cannotStart says whether a replica has tried for long to start from a checkpoint.
func (o observed) cannotStart(r *replica) bool {
	if r.current.Annotations[annotationStartedFrom] == "" {
		return false
	}
	return slices.ContainsFunc(r.live(), func(pod *corev1.Pod) bool {
		since := scheduledAt(pod)
		return !since.IsZero() && o.now.Sub(since) >= startPatience && waitsForStart(pod)
	})
}

// imageProblems are in the kubelet's messages on an image that cannot be used. Any other that cannot be pulled says nothing of it: the
// registry may not answer.
var imageProblems = []string{"not found", "manifest unknown", "inspect image"}

// waitsForStart says whether a container is not started for which its image may be the reason.
func waitsForStart(pod *corev1.Pod) bool {
	obstacle := podend.ObstacleOf(pod)
	if obstacle == nil {
		return false
	}
	switch obstacle.Reason {
	case reasons.InvalidImageName, reasons.ContainerStartFailed:
		return true
	case reasons.ImagePullFailed:
		text := strings.ToLower(obstacle.Detail)
		return slices.ContainsFunc(imageProblems, func(problem string) bool { return strings.Contains(text, problem) })
	}
	return false
}

// scheduledAt is when a pod got its node; zero before.
func scheduledAt(pod *corev1.Pod) time.Time {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}
