package spotinstancejob

import (
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/dcnlab/spot-training-operator/internal/nodenotice"
)

// fate is what becomes of an attempt.
type fate int

const (
	// goesOn: it runs, or will.
	goesOn fate = iota
	// noticed: its node is being taken back, and it still runs there.
	noticed
	// lost: it was lost with its node, or driven from it.
	lost
	// vanished: somebody deleted it, or a kubelet refused it. It is started again, and nobody is to blame.
	vanished
	// unstartable: the checkpoint from which it was to start is of no use.
	unstartable
	// failed: its program failed, and may be started again.
	failed
	// hopeless: it has failed for good.
	hopeless
	// succeeded: it has ended well.
	succeeded
)

// verdict is the fate of an attempt and what is known of it.
type verdict struct {
	fate fate
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

// lost says whether a node surely runs nothing any more. One that merely does not answer may still run its pods. One
// that the provider said it takes back at a certain time, and that has not answered since, does not.
func (n *node) lost(now time.Time) bool {
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

// judge says what becomes of the current attempt of a replica.
func (o observed) judge(r *replica) verdict {
	if r.current == nil {
		return verdict{fate: vanished}
	}
	if jobCondition(r.current, batchv1.JobComplete) != nil {
		return verdict{fate: succeeded}
	}
	failure := jobCondition(r.current, batchv1.JobFailed)
	if !single(o.job) { // the Job controller replaces its pods
		if failure != nil {
			return verdict{fate: hopeless, message: failure.Reason + ": " + failure.Message}
		}
		return verdict{}
	}
	if failure != nil && len(r.live()) == 0 {
		return o.judgeFailed(r, failure)
	}
	for _, pod := range r.pods {
		if v := o.judgePod(pod); v.fate != goesOn {
			return v
		}
	}
	if r.left() {
		return verdict{fate: lost, message: "its pod has left node " + r.status.NodeName + ", which was being taken back"}
	}
	if failure == nil && o.cannotStart(r) {
		return verdict{fate: unstartable, message: "no container could be started from checkpoint " + r.current.Annotations[annotationStartedFrom]}
	}
	return verdict{}
}

// judgePod says whether a pod is or will be lost to something outside the training.
func (o observed) judgePod(pod *corev1.Pod) verdict {
	n := o.nodes[pod.Spec.NodeName]
	if podEnded(pod) {
		if why := disruption(pod); why != "" && pod.Status.Phase == corev1.PodFailed {
			return verdict{fate: lost, message: fmt.Sprintf("pod %s was lost: %s", pod.Name, why)}
		}
		return verdict{}
	}
	switch why := disruption(pod); {
	case n.lost(o.now):
		return verdict{fate: lost, message: fmt.Sprintf("node %s of pod %s is gone", pod.Spec.NodeName, pod.Name)}
	case n != nil && n.notice != nil:
		return verdict{
			fate: noticed, deadline: n.notice.Deadline, undated: n.notice.Time.Equal(o.now),
			message: fmt.Sprintf("node %s of pod %s is being taken back (%s: %s)", pod.Spec.NodeName, pod.Name, n.notice.Source, n.notice.Detail),
		}
	case why != "" && pod.DeletionTimestamp != nil:
		return verdict{fate: lost, message: fmt.Sprintf("pod %s is being driven from its node: %s", pod.Name, why)}
	}
	return verdict{}
}

// disruption is why Kubernetes took a pod away; empty when it did not. A pod that was evicted for what it used itself
// has failed.
func disruption(pod *corev1.Pod) string {
	if pod.Status.Reason == "Evicted" {
		return ""
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			return strings.TrimSuffix(c.Reason+": "+c.Message, ": ")
		}
	}
	switch pod.Status.Reason {
	case "NodeLost", "NodeShutdown", "Terminated", "Shutdown", "Preempting":
		return strings.TrimSuffix(pod.Status.Reason+": "+pod.Status.Message, ": ")
	}
	return ""
}

// judgeFailed says why a Job failed.
func (o observed) judgeFailed(r *replica, failure *batchv1.JobCondition) verdict {
	if r.marked() {
		return verdict{fate: lost, message: "it ended while its node was being taken back"}
	}
	for _, pod := range r.pods {
		if v := o.judgePod(pod); v.fate == lost {
			return v
		}
	}
	at := failure.LastTransitionTime.Time
	if failure.Reason == batchv1.JobReasonDeadlineExceeded {
		return verdict{fate: hopeless, at: at, message: failure.Reason + ": " + failure.Message}
	}
	pod := failedPod(r.pods)
	if pod == nil {
		return verdict{fate: vanished, at: at, message: "its pod was deleted or refused by its node"}
	}
	v := verdict{fate: hopeless, at: at, message: failureMessage(pod), badStart: o.badStart(r, pod)}
	evicted := failure.Reason == batchv1.JobReasonPodFailurePolicy && evictedForPressure(pod)
	v.badStart = v.badStart && !evicted
	if failure.Reason != batchv1.JobReasonBackoffLimitExceeded && !evicted {
		v.message = failure.Reason + ": " + v.message
		return v
	}
	if (restarted(o.job) || evicted) && failuresBefore(r.current) < backoffLimit(o) {
		v.fate = failed
	}
	return v
}

// evictedForPressure says whether the kubelet drove a pod out because its node had too little of something. The first rule
// of a replica's Job ends it for that at once; it counts as a failure, and may pass.
func evictedForPressure(pod *corev1.Pod) bool {
	return pod.Status.Reason == "Evicted" && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue
	})
}

// backoffLimit is how often a replica may fail before it is given up less one, as for a Job.
func backoffLimit(o observed) int32 { return ptr.Deref(o.job.Spec.JobTemplate.Spec.BackoffLimit, 6) }

// failedPod is the newest pod whose program failed.
func failedPod(pods []*corev1.Pod) *corev1.Pod {
	for _, pod := range slices.Backward(pods) {
		if pod.Status.Phase == corev1.PodFailed && (pod.Status.Reason == "Evicted" || terminated(pod) != nil) {
			return pod
		}
	}
	return nil
}

// terminated is how the first container that failed ended; nil when none did.
func terminated(pod *corev1.Pod) *corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range list {
			if end := list[i].State.Terminated; end != nil && end.ExitCode != 0 {
				return &list[i]
			}
		}
	}
	return nil
}

func failureMessage(pod *corev1.Pod) string {
	status := terminated(pod)
	if status == nil {
		return fmt.Sprintf("pod %s: %s: %s", pod.Name, pod.Status.Reason, pod.Status.Message)
	}
	text := fmt.Sprintf("container %s of pod %s ended with exit code %d", status.Name, pod.Name, status.State.Terminated.ExitCode)
	if said := strings.TrimSpace(status.State.Terminated.Message); said != "" {
		text += ": " + said
	} else if reason := status.State.Terminated.Reason; reason != "" && reason != "Error" {
		text += " (" + reason + ")"
	}
	return text
}

// badStart says whether the pod failed so soon after its start from a checkpoint that this may be the reason.
func (o observed) badStart(r *replica, pod *corev1.Pod) bool {
	status := terminated(pod)
	if r.current.Annotations[annotationStartedFrom] == "" || status == nil {
		return false
	}
	end := status.State.Terminated
	return end.Reason == "StartError" || end.Reason == "ContainerCannotRun" || end.FinishedAt.Sub(end.StartedAt.Time) < soon
}

// notStarted are the reasons why a container that waits was not started, for which its image may be to blame.
var notStarted = []string{
	"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError",
	"CreateContainerError", "RunContainerError", "StartError",
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

func waitsForStart(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(status corev1.ContainerStatus) bool {
		waiting := status.State.Waiting
		return waiting != nil && slices.Contains(notStarted, waiting.Reason) && !pullTrouble(waiting)
	})
}

// pullTrouble says whether an image cannot be fetched at present, which says nothing of the checkpoint in it, unless the
// registry says that it has no such image.
func pullTrouble(waiting *corev1.ContainerStateWaiting) bool {
	if waiting.Reason != "ErrImagePull" && waiting.Reason != "ImagePullBackOff" {
		return false
	}
	text := strings.ToLower(waiting.Message)
	return !strings.Contains(text, "not found") && !strings.Contains(text, "manifest unknown")
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
