package podend

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// mostBoots bounds how many nodes are asked for after one failure.
const mostBoots = 100

// Silent are the pods on nodes that have reported no end although others lost contact to one of the group: their nodes may be lost. Nil
// entries are passed over.
func (p *Program) Silent(pods []*corev1.Pod) []*corev1.Pod {
	lostPeer := func(pod *corev1.Pod) bool { return pod != nil && p.ExitCode(pod) == ExitPeerLost }
	if !slices.ContainsFunc(pods, lostPeer) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool {
		if pod == nil || pod.Spec.NodeName == "" || IsEnded(pod) || p.Terminated(pod) != nil {
			return true
		}
		reason, _ := p.Loss(pod)
		return reason != ""
	})
}

// NodeLoss says why a node no longer runs pods; empty when it does. The node is nil when it no longer exists.
func NodeLoss(node *corev1.Node) string {
	if node == nil {
		return "the node no longer exists"
	}
	for _, taint := range node.Spec.Taints {
		if taint.Effect == corev1.TaintEffectNoExecute && (taint.Key == corev1.TaintNodeUnreachable || taint.Key == corev1.TaintNodeNotReady) {
			return "the node has the taint " + taint.Key
		}
	}
	if !slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	}) {
		return "the node is not ready"
	}
	return ""
}

// Boots are the boot IDs of the pods' nodes, by name. The nodes are those that were read, nil for one that does not exist.
func Boots(pods []*corev1.Pod, nodes map[string]*corev1.Node) map[string]string {
	boots := map[string]string{}
	for _, pod := range pods {
		if len(boots) == mostBoots {
			break
		}
		boots[pod.Spec.NodeName] = ""
		if node := nodes[pod.Spec.NodeName]; node != nil {
			boots[pod.Spec.NodeName] = node.Status.NodeInfo.BootID
		}
	}
	return boots
}

// LostNode is the first of the nodes with boot IDs that was lost since these were read, and why; empty when none was. A node that starts
// fast enough is never seen not to be ready.
func LostNode(boots map[string]string, nodes map[string]*corev1.Node) (name, why string) {
	for _, name := range slices.Sorted(maps.Keys(boots)) {
		node, read := nodes[name]
		if !read {
			continue
		}
		if why := NodeLoss(node); why != "" {
			return name, why
		}
		if boot := boots[name]; boot != "" && boot != node.Status.NodeInfo.BootID {
			return name, "the node was started again"
		}
	}
	return "", ""
}
