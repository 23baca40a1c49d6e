// Package podloss tells from a pod's status how it ended: by the program in it, or lost to something outside of that: eviction,
// preemption, or the end of its node. Such a loss is no failure of the program, and would not happen again on another node.
package podloss

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// Loss says how a pod was lost: the kind as a reason constant of api/ml, and what the cluster says of it. The reason is empty when
// it was not.
func (p Program) Loss(pod *corev1.Pod) (reason, detail string) {
	detail = strings.TrimSpace(pod.Status.Message)
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.DisruptionTarget && condition.Status == corev1.ConditionTrue {
			reason = disruptionReason(condition.Reason, pod.Status.Reason)
			detail = condition.Reason + ": " + condition.Message
		}
	}
	if reason == "" {
		reason = statusReason(pod, p.Terminated(pod) != nil)
		detail = pod.Status.Reason + ": " + detail
	}
	if reason == "" {
		return "", ""
	}
	return reason, strings.TrimSuffix(strings.TrimSpace(detail), ":")
}

// disruptionReason is the kind of loss that a pod's condition DisruptionTarget tells of. The kubelet has one reason for
// all that it does, and tells them apart by the reason of the pod.
func disruptionReason(condition, pod string) string {
	switch condition {
	case "PreemptionByScheduler":
		return mlv1.ReasonPreempted
	case "EvictionByEvictionAPI":
		return mlv1.ReasonEvicted
	case "DeletionByPodGC":
		return mlv1.ReasonNodeLost
	case "DeletionByTaintManager":
		return mlv1.ReasonNodeTainted
	case "TerminationByKubelet":
		return cmp.Or(kubeletReasons[pod], mlv1.ReasonDisrupted)
	}
	return cmp.Or(kubeletReasons[pod], mlv1.ReasonDisrupted)
}

// kubeletReasons are the kinds of loss by the reason in a pod's status.
var kubeletReasons = map[string]string{
	"Evicted": mlv1.ReasonNodePressure, "Preempting": mlv1.ReasonPreempted, "NodeLost": mlv1.ReasonNodeLost,
	"NodeShutdown": mlv1.ReasonNodeShutdown, "Terminated": mlv1.ReasonNodeShutdown, "Shutdown": mlv1.ReasonNodeShutdown,
}

// refusals are what a kubelet says of a pod that it does not take; those for a resource begin with OutOf.
var refusals = []string{"UnexpectedAdmissionError", "NodeAffinity", "NodeName", "NodePorts", "TaintToleration", "TopologyAffinityError"}

// statusReason is the kind of loss that the reason in a pod's status alone tells of; empty for none.
func statusReason(pod *corev1.Pod, ended bool) string {
	if OverStorageLimit(pod) {
		return ""
	}
	if known, ok := kubeletReasons[pod.Status.Reason]; ok {
		return known
	}
	if pod.Status.Phase == corev1.PodFailed && !ended &&
		(strings.HasPrefix(pod.Status.Reason, "OutOf") || slices.Contains(refusals, pod.Status.Reason)) {
		return mlv1.ReasonNodeRefused
	}
	return ""
}

// OverStorageLimit says whether the kubelet evicted a pod for what it wrote itself: that is the program's doing, and
// would happen again on every node.
func OverStorageLimit(pod *corev1.Pod) bool {
	return pod.Status.Reason == "Evicted" && strings.Contains(pod.Status.Message, "exceed") && strings.Contains(pod.Status.Message, "limit")
}
