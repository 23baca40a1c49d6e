package queuestatus

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/queueing"
)

func TestHealth(t *testing.T) {
	tests := map[string]struct {
		figures  queueing.ClusterFigures
		minNodes *int32
		selector map[string]aiplatformv1alpha1.LabelValue
		health   aiplatformv1alpha1.ClusterHealth
		ready    metav1.ConditionStatus
		reason   string
		message  string
	}{
		"all nodes are ready": {
			figures: queueing.ClusterFigures{Nodes: 2, Ready: 2}, minNodes: ptr.To[int32](2),
			health: "Healthy", ready: "True", reason: "Ready", message: "all nodes take pods",
		},
		"one is not": {
			figures: queueing.ClusterFigures{Nodes: 3, Ready: 2},
			health:  "Degraded", ready: "True", reason: "NodesNotReady", message: "2 of 3 nodes take pods",
		},
		"there are fewer than there should be": {
			figures: queueing.ClusterFigures{Nodes: 2, Ready: 2}, minNodes: ptr.To[int32](3),
			health: "Degraded", ready: "True", reason: "NodesNotReady", message: "2 of 2 nodes take pods, and spec.minNodes is 3",
		},
		"none is ready": {
			figures: queueing.ClusterFigures{Nodes: 2},
			health:  "Unhealthy", ready: "False", reason: "NodesNotReady", message: "none of the 2 nodes takes pods",
		},
		"no node matches": {
			selector: map[string]aiplatformv1alpha1.LabelValue{"gpu": "a100"},
			health:   "Unknown", ready: "False", reason: "NoMatchingNodes", message: "no node has all labels of spec.nodeSelector",
		},
		"no node matches, and there should be some": {
			minNodes: ptr.To[int32](1), health: "Unhealthy", ready: "False", reason: "NoMatchingNodes", message: "has no nodes",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cluster := &aiplatformv1alpha1.ComputeCluster{ObjectMeta: metav1.ObjectMeta{Name: "c", Generation: 2}}
			cluster.Spec.MinNodes, cluster.Spec.NodeSelector = test.minNodes, test.selector
			test.figures.GPUs, test.figures.FreeGPUs, test.figures.Jobs = 8, 3, 2

			got := planCluster(observedCluster{cluster: cluster, figures: test.figures, now: noon})

			assert.Equal(t, test.health, got.Health)
			require.Len(t, got.Conditions, 1)
			assert.Equal(t, test.ready, got.Conditions[0].Status)
			assert.Equal(t, test.reason, got.Conditions[0].Reason)
			assert.Contains(t, got.Conditions[0].Message, test.message)
			assert.EqualValues(t, test.figures.Nodes, got.TotalNodes)
			assert.EqualValues(t, test.figures.Ready, got.ReadyNodes)
			assert.EqualValues(t, []int32{8, 3, 2}, []int32{got.TotalGPUs, got.FreeGPUs, got.RunningJobs})
			assert.EqualValues(t, 2, got.ObservedGeneration)
		})
	}
}
