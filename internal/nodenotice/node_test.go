package nodenotice_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/nodenotice"
)

var (
	now     = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	earlier = now.Add(-10 * time.Second)
)

// edit of a node named n.
type edit func(*corev1.Node)

func makeNode(edits ...edit) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{}}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}}
	for _, e := range edits {
		e(node)
	}
	return node
}

func annotated(notice, source string) edit {
	return func(node *corev1.Node) {
		node.Annotations[spotv1alpha1.AnnotationPreemptionNotice] = notice
		if source != "" {
			node.Annotations[spotv1alpha1.AnnotationPreemptionSource] = source
		}
	}
}

func tainted(key, value string, added *metav1.Time) edit {
	return func(node *corev1.Node) {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffectNoSchedule, TimeAdded: added})
	}
}

func ready(status corev1.ConditionStatus, reason, message string, since time.Time) edit {
	return func(node *corev1.Node) {
		node.Status.Conditions = []corev1.NodeCondition{
			{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Message: "node is shutting down"},
			{Type: corev1.NodeReady, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(since)},
		}
	}
}

func TestFromNode(t *testing.T) {
	added := metav1.NewTime(earlier)
	taint := func(key string, seen time.Time, grace time.Duration) *nodenotice.Notice {
		return &nodenotice.Notice{Node: "n", Source: nodenotice.Taint, Detail: "taint " + key, Time: seen, Deadline: seen.Add(grace)}
	}
	ours := func(source nodenotice.Source, grace time.Duration) *nodenotice.Notice {
		return &nodenotice.Notice{
			Node: "n", Source: source, Detail: "annotation training.dcnlab.com/preemption-notice", Time: earlier, Deadline: earlier.Add(grace),
		}
	}
	shutdown := &nodenotice.Notice{
		Node: "n", Source: nodenotice.NodeShutdown, Detail: "condition Ready: node is shutting down",
		Time: earlier, Deadline: earlier.Add(30 * time.Second),
	}
	stamp := earlier.Format(time.RFC3339Nano)
	for name, test := range map[string]struct {
		node *corev1.Node
		want *nodenotice.Notice
	}{
		"a node without a notice":        {node: makeNode()},
		"our annotation with a source":   {makeNode(annotated(stamp, "ComputeOperation")), ours(nodenotice.ComputeOperation, 30*time.Second)},
		"our annotation, by a person":    {makeNode(annotated(stamp, "")), ours(nodenotice.Annotation, 30*time.Second)},
		"a maintenance is a minute away": {makeNode(annotated(stamp, "HostMaintenance")), ours(nodenotice.HostMaintenance, time.Minute)},
		"or an hour from a node with GPUs": {
			makeNode(annotated(stamp, "HostMaintenance"), func(node *corev1.Node) {
				node.Status.Allocatable = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}
			}),
			ours(nodenotice.HostMaintenance, time.Hour),
		},
		"an annotation that is no time": {makeNode(annotated("yes", "")), &nodenotice.Notice{
			Node: "n", Source: nodenotice.Annotation, Time: now, Deadline: now.Add(30 * time.Second),
			Detail: `annotation training.dcnlab.com/preemption-notice, whose value "yes" is no time in RFC 3339`,
		}},
		"our annotation goes before a taint": {
			makeNode(annotated(stamp, "MetadataServer"), tainted("cloud.google.com/impending-node-termination", "", nil)),
			ours(nodenotice.MetadataServer, 30*time.Second),
		},
		"a taint goes before a maintenance": {
			makeNode(annotated(stamp, "HostMaintenance"), tainted("cloud.google.com/impending-node-termination", "", nil)),
			taint("cloud.google.com/impending-node-termination", now, 30*time.Second),
		},
		"our taint alone is no notice":   {node: makeNode(tainted("training.dcnlab.com/preemption", "", nil))},
		"taints of other kinds are none": {node: makeNode(tainted("node.kubernetes.io/unreachable", "", nil), tainted("node.kubernetes.io/unschedulable", "", nil), tainted("aws-node-termination-handler/rebalance-recommendation", "", nil), tainted("DeletionCandidateOfClusterAutoscaler", "1", nil))},
		"Google Cloud's handler": {
			makeNode(tainted("cloud.google.com/impending-node-termination", "", &added)),
			taint("cloud.google.com/impending-node-termination", earlier, 30*time.Second),
		},
		"AWS's handler tells two minutes ahead": {
			makeNode(tainted("aws-node-termination-handler/spot-itn", "event-id", nil)),
			taint("aws-node-termination-handler/spot-itn", now, 2*time.Minute),
		},
		"a node that a person took out of service is gone": {
			makeNode(tainted("node.kubernetes.io/out-of-service", "nodeshutdown", &added)),
			taint("node.kubernetes.io/out-of-service", earlier, 0),
		},
		"a node that its cloud has stopped is gone": {
			makeNode(tainted("karpenter.sh/disrupted", "", nil), tainted("node.cloudprovider.kubernetes.io/shutdown", "", &added)),
			taint("node.cloudprovider.kubernetes.io/shutdown", earlier, 0),
		},
		"Karpenter":                       {makeNode(tainted("karpenter.sh/disrupted", "", nil)), taint("karpenter.sh/disrupted", now, 30*time.Second)},
		"Karpenter before its version 1":  {makeNode(tainted("karpenter.sh/disruption", "disrupting", nil)), taint("karpenter.sh/disruption", now, 30*time.Second)},
		"another disruption of Karpenter": {node: makeNode(tainted("karpenter.sh/disruption", "candidate", nil))},
		"the Cluster Autoscaler writes when": {
			makeNode(tainted("ToBeDeletedByClusterAutoscaler", "1777896000", nil)),
			taint("ToBeDeletedByClusterAutoscaler", time.Unix(1777896000, 0), 30*time.Second),
		},
		"the Cluster Autoscaler with another value": {
			makeNode(tainted("ToBeDeletedByClusterAutoscaler", "soon", nil)),
			taint("ToBeDeletedByClusterAutoscaler", now, 30*time.Second),
		},
		"the kubelet shuts down": {makeNode(ready(corev1.ConditionFalse, "KubeletNotReady", "node is shutting down", earlier)), shutdown},
		"the kubelet shuts down and says more": {
			makeNode(ready(corev1.ConditionFalse, "KubeletNotReady", "[PLEG is not healthy, node is shutting down]", earlier)), shutdown,
		},
		"the kubelet shuts down, by reason": {makeNode(ready(corev1.ConditionFalse, "NodeShutdown", "", earlier)), shutdown},
		"the kubelet is not ready":          {node: makeNode(ready(corev1.ConditionFalse, "KubeletNotReady", "container runtime is down", earlier))},
		"the kubelet is silent":             {node: makeNode(ready(corev1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting node status.", earlier))},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := nodenotice.FromNode(test.node, now)
			if test.want == nil {
				assert.False(t, ok, "unexpected notice %v", got)
				return
			}
			assert.True(t, ok)
			assert.True(t, test.want.Time.Equal(got.Time), "time: want %s, got %s", test.want.Time, got.Time)
			assert.True(t, test.want.Deadline.Equal(got.Deadline), "deadline: want %s, got %s", test.want.Deadline, got.Deadline)
			got.Time, got.Deadline = test.want.Time, test.want.Deadline
			assert.Equal(t, *test.want, got)
		})
	}
}
