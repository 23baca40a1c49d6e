package podend

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/dcnlab/spot-training-operator/api/reasons"
)

// losses are the reasons of losses, and how each reads after the name of the pod.
var losses = map[string]string{
	reasons.PodPreempted:  "was preempted for a pod with a higher priority",
	reasons.Evicted:       "was evicted through the API, as kubectl drain does",
	reasons.NodeLost:      "was lost with its node",
	reasons.NodeShutdown:  "was stopped because its node was shut down",
	reasons.NodePressure:  "was evicted by the kubelet because its node was short of a resource",
	reasons.NodeTainted:   "was evicted because its node got a taint with the effect NoExecute",
	reasons.NodePreempted: "was stopped because the provider takes its node back",
	reasons.NodeRefused:   "was refused by the kubelet of its node",
	reasons.PodDeleted:    "was deleted",
	reasons.JobDeleted:    "was deleted",
	reasons.Disrupted:     "was lost",
}

// IsLoss says whether a reason, also one that version 0.3 wrote, is that of a loss.
func IsLoss(reason string) bool {
	_, known := losses[reason]
	return known || reason == reasons.Preempted // 0.3 said so of TrainingJobs for PodPreempted
}

// Loss says how a pod was lost: the reason, and what the cluster says of it. The reason is empty when it was not.
func (p *Program) Loss(pod *corev1.Pod) (reason, detail string) {
	detail = strings.TrimSpace(pod.Status.Message)
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.DisruptionTarget && condition.Status == corev1.ConditionTrue {
			reason = disruptionReason(condition.Reason, pod.Status.Reason)
			detail = condition.Reason + ": " + cmp.Or(condition.Message, strings.TrimSpace(pod.Status.Message))
		}
	}
	if reason == "" {
		reason = statusReason(pod, p.Terminated(pod) != nil)
		detail = pod.Status.Reason + ": " + detail
	}
	if reason == "" {
		reason, detail = unknownEnd(p.Terminated(pod))
	}
	if reason == "" {
		return "", ""
	}
	return reason, strings.TrimSuffix(strings.TrimSpace(detail), ":")
}

// unknownEnd is the loss of a container whose node no longer knows how it ended: because the node was started again so soon that it
// never was not ready, as a rule. The kubelet says so where it finds no container, and containerd (255, Unknown) where it finds no process.
func unknownEnd(ended *corev1.ContainerStateTerminated) (reason, detail string) {
	switch {
	case ended == nil:
		return "", ""
	case ended.Reason == "ContainerStatusUnknown":
		return reasons.NodeLost, ended.Reason + ": " + ended.Message
	case ended.Reason == "Unknown" && ended.ExitCode == exitUnknown:
		return reasons.NodeLost, "the container runtime was started again and does not know how the container ended"
	}
	return "", ""
}

// disruptionReason is the kind of loss that a pod's condition DisruptionTarget names. The kubelet has one reason for all that it does;
// the reason of the pod tells more.
func disruptionReason(condition, pod string) string {
	switch condition {
	case corev1.PodReasonPreemptionByScheduler:
		return reasons.PodPreempted
	case "EvictionByEvictionAPI":
		return reasons.Evicted
	case "DeletionByPodGC", reasons.NodeLost:
		return reasons.NodeLost
	case "DeletionByTaintManager":
		return reasons.NodeTainted
	}
	return cmp.Or(kubeletReasons[pod], reasons.Disrupted)
}

// kubeletReasons are the kinds of loss by the reason in a pod's status.
var kubeletReasons = map[string]string{
	"Evicted": reasons.NodePressure, "Preempting": reasons.PodPreempted, "NodeLost": reasons.NodeLost,
	"NodeShutdown": reasons.NodeShutdown, "Terminated": reasons.NodeShutdown, "Shutdown": reasons.NodeShutdown,
}

// refusals are the reasons of pods that a kubelet did not accept; those for a resource begin with OutOf.
var refusals = []string{"UnexpectedAdmissionError", "NodeAffinity", "NodeName", "NodePorts", "TaintToleration", "TopologyAffinityError"}

// statusReason is the kind of loss that the reason in a pod's status alone names; empty for none.
func statusReason(pod *corev1.Pod, ended bool) string {
	if isOverStorageLimit(pod) {
		return ""
	}
	if known, ok := kubeletReasons[pod.Status.Reason]; ok {
		return known
	}
	if pod.Status.Phase == corev1.PodFailed && !ended &&
		(strings.HasPrefix(pod.Status.Reason, "OutOf") || slices.Contains(refusals, pod.Status.Reason)) {
		return reasons.NodeRefused
	}
	return ""
}

// isOverStorageLimit says whether the kubelet evicted a pod for what it wrote itself: that is the program's doing, and would happen
// again on every node.
func isOverStorageLimit(pod *corev1.Pod) bool {
	return pod.Status.Reason == "Evicted" && strings.Contains(pod.Status.Message, "exceed") && strings.Contains(pod.Status.Message, "limit")
}
