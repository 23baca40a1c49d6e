package trainingjob

import (
	"context"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/child"
	"github.com/dcnlab/spot-training-operator/internal/podend"
)

// node is what is known of a node that a pod was on.
type node struct {
	gone   bool
	ready  bool
	taints []corev1.Taint
}

// observeNodes reads the nodes of the pods where only the node tells why they were lost. That is rare, so that no
// node is held in the cache.
func (r *Reconciler) observeNodes(ctx context.Context, o *observed) error {
	if o.workers == nil || isFinished(&o.job.Status) || build.AttemptOf(o.workers) < o.job.Status.RestartCount {
		return nil
	}
	for _, pod := range unexplained(o.podsOf(o.workers.UID)) {
		name := pod.Spec.NodeName
		if _, known := o.nodes[name]; known || name == "" {
			continue
		}
		var is corev1.Node
		found, err := child.Find(ctx, r.Direct, client.ObjectKey{Name: name}, &is)
		if err != nil {
			return err
		}
		if o.nodes == nil {
			o.nodes = map[string]*node{}
		}
		o.nodes[name] = nodeOf(&is, !found)
	}
	return nil
}

func nodeOf(is *corev1.Node, gone bool) *node {
	return &node{gone: gone, taints: is.Spec.Taints, ready: slices.ContainsFunc(is.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})}
}

// whyLost says why the node no longer runs pods; empty when it does, or nothing is known.
func (n *node) whyLost() string {
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

// evictingTaints names the taints that evict pods from the node.
func (n *node) evictingTaints() string {
	var names []string
	for _, taint := range n.taints {
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
func (o *observed) blameNode(workers *batchv1.Job, found *failure) *failure {
	switch found.Reason {
	case reasons.NodeTainted:
		on := o.nodes[found.node]
		if why := on.whyLost(); why != "" {
			return found.lostTo(reasons.NodeLost, why)
		}
		if on != nil {
			return found.lostTo(reasons.NodeTainted, on.evictingTaints())
		}
	case reasons.PeerLost:
		for _, pod := range o.podsOf(workers.UID) {
			if why := o.nodes[pod.Spec.NodeName].whyLost(); why != "" && workerProgram.Terminated(pod) == nil {
				return failureOf(pod).lostTo(reasons.NodeLost, why)
			}
		}
	}
	return found
}
