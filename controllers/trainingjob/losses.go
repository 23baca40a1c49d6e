package trainingjob

import (
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/internal/podloss"
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
	reason, detail := workerProgram.Loss(pod)
	if reason == "" {
		return nil
	}
	found := losses[reason]
	found.reason, found.detail = reason, detail
	return &found
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
	followers := slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return workerProgram.ExitCode(pod) == podloss.ExitPeerLost })
	for _, pod := range pods {
		lost := lossOf(pod)
		if (lost != nil && lost.reason == mlv1.ReasonNodeTainted) || (lost == nil && followers && workerProgram.Terminated(pod) == nil) {
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
			if why == "" || workerProgram.Terminated(pod) != nil {
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
