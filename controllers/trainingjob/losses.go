package trainingjob

import (
	"cmp"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// loss is how a pod was lost to something outside the training.
type loss struct {
	reason string // a reason constant of the API
	how    string // goes on after "worker 0 (pod x) "
	detail string // what the cluster says of it
	remedy string
}

// losses are the kinds of loss. Their details come from the pod.
var losses = map[string]loss{
	mlv1.ReasonPreempted: {
		how: "was preempted for a pod of higher priority", remedy: "to keep its place, give the job a higher spec.scheduling.priority",
	},
	mlv1.ReasonEvicted: {
		how:    "was evicted through the API, as kubectl drain does",
		remedy: "a PodDisruptionBudget that selects the job's pods holds such evictions back",
	},
	mlv1.ReasonNodeLost:     {how: "was lost with its node"},
	mlv1.ReasonNodeShutdown: {how: "was stopped because its node was shut down"},
	mlv1.ReasonNodePressure: {
		how:    "was evicted by the kubelet of its node, which was short of a resource",
		remedy: "set spec.resources.requests to what a worker really uses",
	},
	mlv1.ReasonNodeTainted: {
		how:    "had to leave its node, which got a taint with the effect NoExecute",
		remedy: "if the job may stay on such nodes, add the taint to spec.scheduling.tolerations",
	},
	mlv1.ReasonNodePreempted: {how: "has to leave its node, which its provider takes back"},
	mlv1.ReasonNodeRefused:   {how: "was refused by the kubelet of its node"},
	mlv1.ReasonDisrupted:     {how: "was lost"},
}

// isLoss says whether the reason of a restart is a loss, which does not count against backoffLimit.
func isLoss(reason string) bool {
	_, known := losses[reason]
	return known || reason == mlv1.ReasonPodDeleted || reason == mlv1.ReasonJobDeleted
}

// lossOf says how a pod was lost to something outside the training; nil when it was not.
func lossOf(pod *corev1.Pod) *loss {
	reason, detail := "", strings.TrimSpace(pod.Status.Message)
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.DisruptionTarget && condition.Status == corev1.ConditionTrue {
			reason = disruptionReason(condition.Reason, pod.Status.Reason)
			detail = condition.Reason + ": " + condition.Message
		}
	}
	if reason == "" {
		reason = statusReason(pod)
		detail = pod.Status.Reason + ": " + detail
	}
	if reason == "" {
		return nil
	}
	found := losses[reason]
	found.reason, found.detail = reason, strings.TrimSuffix(strings.TrimSpace(detail), ":")
	return &found
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
func statusReason(pod *corev1.Pod) string {
	if overStorageLimit(pod) {
		return ""
	}
	if known, ok := kubeletReasons[pod.Status.Reason]; ok {
		return known
	}
	if pod.Status.Phase == corev1.PodFailed && terminated(pod) == nil &&
		(strings.HasPrefix(pod.Status.Reason, "OutOf") || slices.Contains(refusals, pod.Status.Reason)) {
		return mlv1.ReasonNodeRefused
	}
	return ""
}

// overStorageLimit says whether the kubelet evicted a pod for what it wrote itself: that is the training's doing, and
// would happen again on every node.
func overStorageLimit(pod *corev1.Pod) bool {
	return pod.Status.Reason == "Evicted" && strings.Contains(pod.Status.Message, "exceed") && strings.Contains(pod.Status.Message, "limit")
}

// node is what is known of a node that a pod was on.
type node struct {
	gone   bool
	ready  bool
	taints []corev1.Taint
}

// lost says why the node no longer runs pods; empty when it does, or nothing is known.
func (n *node) lost() string {
	switch {
	case n == nil:
		return ""
	case n.gone:
		return "the node no longer exists"
	}
	for _, taint := range n.taints {
		if taint.Effect == corev1.TaintEffectNoExecute && (taint.Key == corev1.TaintNodeUnreachable || taint.Key == corev1.TaintNodeNotReady) {
			return "the node has the taint " + taint.Key
		}
	}
	if !n.ready {
		return "the node is not ready"
	}
	return ""
}

// expelling names the taints that drive pods from the node.
func (n *node) expelling() string {
	var names []string
	for _, taint := range n.taints {
		if taint.Effect == corev1.TaintEffectNoExecute {
			names = append(names, taint.ToString())
		}
	}
	return strings.Join(names, ", ")
}

// doubtful are the pods of which only their node tells why they were lost: those that a taint drove away, and those
// that have not ended although others lost them.
func doubtful(pods []*corev1.Pod) []*corev1.Pod {
	var list []*corev1.Pod
	followers := slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return exitCode(pod) == exitPeerLost })
	for _, pod := range pods {
		lost := lossOf(pod)
		if (lost != nil && lost.reason == mlv1.ReasonNodeTainted) || (lost == nil && followers && terminated(pod) == nil) {
			list = append(list, pod)
		}
	}
	return list
}

// blameNode is a failure in the light of what is known of nodes: a taint that stands for the loss of a node is told as
// that loss, and workers that lost a peer did so because its node was lost.
func blameNode(o observed, workers *batchv1.Job, found *failure) *failure {
	switch found.reason {
	case mlv1.ReasonNodeTainted:
		on := o.nodes[found.node]
		if why := on.lost(); why != "" {
			return found.because(losses[mlv1.ReasonNodeLost], mlv1.ReasonNodeLost, why)
		}
		if on != nil {
			return found.because(losses[mlv1.ReasonNodeTainted], mlv1.ReasonNodeTainted, on.expelling())
		}
	case mlv1.ReasonPeerLost:
		for _, pod := range o.podsOf(workers.UID) {
			why := o.nodes[pod.Spec.NodeName].lost()
			if why == "" || terminated(pod) != nil {
				continue
			}
			lost := failureOf(pod)
			return lost.because(losses[mlv1.ReasonNodeLost], mlv1.ReasonNodeLost, why)
		}
	}
	return found
}

// because is the failure with its reason replaced by a loss.
func (f *failure) because(kind loss, reason, detail string) *failure {
	lost := *f
	kind.reason, kind.detail = reason, detail
	lost.reason, lost.disrupted, lost.exitCode = reason, true, 0
	lost.message = kind.of(lost.who)
	return &lost
}

// of is the loss in words.
func (l loss) of(who string) string {
	words := who + " " + l.how
	if l.detail != "" {
		words += ": " + l.detail
	}
	if l.remedy != "" {
		words += "; " + l.remedy
	}
	return words
}
