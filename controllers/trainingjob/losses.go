package trainingjob

import (
	"context"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
)

// observeNodes reads the nodes of the pods where only the node tells why they were lost, and those of failures that are not settled. That
// is rare, so that these are read from the API server, which knows most.
func (r *Reconciler) observeNodes(ctx context.Context, o *observed) (err error) {
	if isFinished(&o.job.Status) {
		return nil
	}
	var names []string
	for _, unsettled := range o.job.Status.UnsettledFailures {
		names = slices.AppendSeq(names, maps.Keys(unsettled.Nodes))
	}
	if o.workers != nil && build.AttemptOf(o.workers) >= o.job.Status.RestartCount {
		for _, pod := range unexplained(o.workerPods()) {
			names = append(names, pod.Spec.NodeName)
		}
	}
	o.nodes, err = reconciling.GetNamed[corev1.Node](ctx, r.Direct, names)
	return err
}

// whyLost says why a node no longer runs pods; empty when it does, or nothing is known.
func (o *observed) whyLost(name string) string {
	if is, known := o.nodes[name]; known {
		return podend.NodeLoss(is)
	}
	return ""
}

// evictingTaints names the taints that evict pods from the node.
func evictingTaints(node *corev1.Node) string {
	var names []string
	for _, taint := range node.Spec.Taints {
		if taint.Effect == corev1.TaintEffectNoExecute {
			names = append(names, taint.ToString())
		}
	}
	return strings.Join(names, ", ")
}

// unexplained are the pods where only their node tells why they were lost: those that a taint evicted, and those that have not ended
// although others lost contact to them.
func unexplained(pods []*corev1.Pod) []*corev1.Pod {
	evicted := only(pods, func(pod *corev1.Pod) bool {
		reason, _ := workerProgram.Loss(pod)
		return reason == reasons.NodeTainted && pod.Spec.NodeName != ""
	})
	return append(evicted, workerProgram.Silent(pods)...)
}

// blameNode explains a failure by what is known of nodes: a taint may stand for the loss of a node, and workers that lost a peer did so
// because its node was lost.
func (o *observed) blameNode(found *failure) *failure {
	if held := unsettledOf(&o.job.Status).Held(); held != nil {
		if node, why := podend.LostNode(held.Nodes, o.nodes); why != "" {
			return lossOfNode(node, why)
		}
	}
	switch found.Reason {
	case reasons.NodeTainted:
		if why := o.whyLost(found.node); why != "" {
			return found.lostTo(reasons.NodeLost, why)
		}
		if on := o.nodes[found.node]; on != nil {
			return found.lostTo(reasons.NodeTainted, evictingTaints(on))
		}
	case reasons.PeerLost:
		for _, pod := range o.workerPods() {
			if why := o.whyLost(pod.Spec.NodeName); why != "" && workerProgram.Terminated(pod) == nil {
				return failureOf(pod).lostTo(reasons.NodeLost, why)
			}
		}
	}
	return found
}
