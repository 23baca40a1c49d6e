package nodenotice

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
)

// foreignTaint is how another program says that a node goes.
type foreignTaint struct {
	key string
	// value that the taint must have; any when empty.
	value string
	// grace from the taint to the end of the node. Programs that drain first take longer; what is done about a notice
	// is better done early.
	grace time.Duration
	// unixTime: the value of the taint is the time in seconds when it was set.
	unixTime bool
}

// foreignTaints that are notices, the most certain first. Recommendations, such as a rebalancing that may never come, are
// none.
var foreignTaints = []foreignTaint{
	// The node is already gone: said by a person, and by the cloud's node lifecycle controller.
	{key: corev1.TaintNodeOutOfService},
	{key: "node.cloudprovider.kubernetes.io/shutdown"},
	// Termination handlers of Google Cloud and of AWS, where an interruption is told two minutes ahead.
	{key: "cloud.google.com/impending-node-termination", grace: Grace},
	{key: "aws-node-termination-handler/spot-itn", grace: 2 * time.Minute},
	// Autoscalers that take the node down.
	{key: "karpenter.sh/disrupted", grace: Grace},
	{key: "karpenter.sh/disruption", value: "disrupting", grace: Grace},
	{key: "ToBeDeletedByClusterAutoscaler", grace: Grace, unixTime: true},
}

// FromNode reads the notice that is on a node, if there is one: that which Mark left, else a taint of a termination
// handler or an autoscaler, else the kubelet's word that its machine shuts down. A host's maintenance leaves more time, so
// any other notice goes before it. now stands in for times that the source does not tell.
func FromNode(node *corev1.Node, now time.Time) (Notice, bool) {
	marked, isMarked := fromAnnotation(node, now)
	if isMarked && marked.Source != HostMaintenance {
		return marked, true
	}
	if notice, ok := fromTaints(node, now); ok {
		return notice, true
	}
	if notice, ok := fromShutdown(node, now); ok {
		return notice, true
	}
	return marked, isMarked
}

// fromAnnotation reads what Mark, or a person, wrote. A value that is no time is a notice all the same: a user wanted
// one.
func fromAnnotation(node *corev1.Node, now time.Time) (Notice, bool) {
	text, ok := node.Annotations[spotv1alpha1.AnnotationPreemptionNotice]
	if !ok {
		return Notice{}, false
	}
	notice := Notice{
		Node: node.Name, Source: Source(node.Annotations[spotv1alpha1.AnnotationPreemptionSource]),
		Detail: "annotation " + spotv1alpha1.AnnotationPreemptionNotice,
	}
	if notice.Source == "" {
		notice.Source = Annotation
	}
	var err error
	if notice.Time, err = time.Parse(time.RFC3339Nano, text); err != nil {
		notice.Time = now
		notice.Detail += fmt.Sprintf(", whose value %q is no time in RFC 3339", text)
	}
	notice.Deadline = notice.Time.Add(notice.Source.grace(node))
	return notice, true
}

func fromTaints(node *corev1.Node, now time.Time) (Notice, bool) {
	for _, known := range foreignTaints {
		for i := range node.Spec.Taints {
			taint := &node.Spec.Taints[i]
			if taint.Key != known.key || known.value != "" && taint.Value != known.value {
				continue
			}
			seen := known.time(taint, now)
			return Notice{
				Node: node.Name, Source: Taint, Detail: "taint " + taint.Key,
				Time: seen, Deadline: seen.Add(known.grace),
			}, true
		}
	}
	return Notice{}, false
}

// time when the taint was set, or now.
func (f foreignTaint) time(taint *corev1.Taint, now time.Time) time.Time {
	if taint.TimeAdded != nil {
		return taint.TimeAdded.Time
	}
	if f.unixTime {
		if seconds, err := strconv.ParseInt(taint.Value, 10, 64); err == nil {
			return time.Unix(seconds, 0)
		}
	}
	return now
}

// shutdownMessage is part of what the kubelet says in the condition Ready while its machine shuts down.
const shutdownMessage = "node is shutting down"

// shutdownReason is the reason of the same condition where it is a reason of its own.
const shutdownReason = "NodeShutdown"

func fromShutdown(node *corev1.Node, now time.Time) (Notice, bool) {
	ready := reconciling.Find(node.Status.Conditions, func(c *corev1.NodeCondition) bool {
		says := c.Reason == shutdownReason || strings.Contains(c.Message, shutdownMessage)
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionFalse && says
	})
	if ready == nil {
		return Notice{}, false
	}
	seen := ready.LastTransitionTime.Time
	if seen.IsZero() {
		seen = now
	}
	return Notice{
		Node: node.Name, Source: NodeShutdown, Detail: "condition Ready: " + shutdownMessage, Time: seen, Deadline: seen.Add(Grace),
	}, true
}
