package trainingjob

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
)

// observeNodes reads the nodes of the pods where only the node tells why they were lost. That is rare, so that no
// node is held in the cache.
func (r *Reconciler) observeNodes(ctx context.Context, o *observed) error {
	if o.workers == nil || isFinished(&o.job.Status) || build.AttemptOf(o.workers) < o.job.Status.RestartCount {
		return nil
	}
	o.nodes = map[string]*corev1.Node{}
	for _, pod := range unexplained(o.workerPods()) {
		name := pod.Spec.NodeName
		if _, known := o.nodes[name]; known || name == "" {
			continue
		}
		is, err := reconciling.Get[corev1.Node](ctx, r.Direct, "", name)
		if err != nil {
			return err
		}
		o.nodes[name] = is
	}
	return nil
}

// whyLost says why a node no longer runs pods; empty when it does, or nothing is known.
func (o *observed) whyLost(name string) string {
	is, known := o.nodes[name]
	switch {
	case !known:
		return ""
	case is == nil:
		return "the node no longer exists"
	}
	for _, taint := range is.Spec.Taints {
		if taint.Effect == corev1.TaintEffectNoExecute && (taint.Key == corev1.TaintNodeUnreachable || taint.Key == corev1.TaintNodeNotReady) {
			return "the node has the taint " + taint.Key
		}
	}
	if !slices.ContainsFunc(is.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	}) {
		return "the node is not ready"
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
	lostPeer := slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return workerProgram.ExitCode(pod) == podend.ExitPeerLost })
	return only(pods, func(pod *corev1.Pod) bool {
		reason, _ := workerProgram.Loss(pod)
		return reason == reasons.NodeTainted || (reason == "" && lostPeer && workerProgram.Terminated(pod) == nil)
	})
}

// blameNode explains a failure by what is known of nodes: a taint may stand for the loss of a node, and workers that lost a peer did so
// because its node was lost.
func (o *observed) blameNode(found *failure) *failure {
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
