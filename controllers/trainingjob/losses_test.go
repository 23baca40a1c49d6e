package trainingjob

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

func tainted(keys ...string) *corev1.Node {
	n := nodeThatIs(corev1.ConditionTrue)
	for _, key := range keys {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute})
	}
	return n
}

func nodeThatIs(ready corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}}}
}

func TestATaintIsToldAsWhatItStandsFor(t *testing.T) {
	tests := map[string]struct {
		node    *corev1.Node
		reason  string
		message string
	}{
		"unreachable": {tainted(corev1.TaintNodeUnreachable), reasons.NodeLost, "was lost with its node: the node has the taint node.kubernetes.io/unreachable"},
		"not ready":   {tainted(corev1.TaintNodeNotReady), reasons.NodeLost, "was lost with its node: the node has the taint node.kubernetes.io/not-ready"},
		"gone":        {nil, reasons.NodeLost, "was lost with its node: the node no longer exists"},
		"silent":      {&corev1.Node{}, reasons.NodeLost, "was lost with its node: the node is not ready"},
		"maintenance": {
			tainted("example.com/maintenance"), reasons.NodeTainted,
			"was evicted because its node got a taint with the effect NoExecute: example.com/maintenance:NoExecute; " +
				"to stay on such nodes, add the taint to spec.scheduling.tolerations",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			job := runningJob(t, builders.TrainingJob("bert").Workers(2).BackoffLimit(0))
			workers := builders.Workers(job).Obj()
			driven := builders.Pod(workers, 1).On("n1").Running().Disrupted("DeletionByTaintManager", "deleting").Deleting(time.Minute).Obj()
			o := see(job, workers, builders.Pod(workers, 0).Running().Obj(), driven)
			o.nodes = map[string]*corev1.Node{"n1": test.node}

			d := plan(o)

			assert.Equal(t, mlv1.StateRestarting, d.status.State)
			assert.Equal(t, test.reason, d.status.Reason)
			assert.Equal(t, "worker 1 (pod bert-training-1-a0 on node n1) "+test.message, d.status.FailureReason)
			assert.Equal(t, &mlv1.FailureStatus{
				Attempt: 1, Reason: test.reason, Worker: ptr.To[int32](1), PodName: "bert-training-1-a0", NodeName: "n1", Time: ptr.To(metav1.NewTime(builders.Noon)),
			}, d.status.LastFailure)
			assert.Equal(t, int32(1), d.status.DisruptionCount)
		})
	}
}

// The node of a worker dies: the others notice long before the cluster takes the pod away.
func TestALostPeerWhoseNodeDiedIsALossAndIsNotCounted(t *testing.T) {
	job := runningJob(t, builders.TrainingJob("bert").Workers(2).BackoffLimit(0))
	workers := builders.Workers(job).Obj()
	follower, silent := builders.Pod(workers, 0).On("n0").Failed(podend.ExitPeerLost).Obj(), builders.Pod(workers, 1).On("n1").Running().Obj()
	o := see(job, workers, follower, silent)
	require.Equal(t, []*corev1.Pod{silent}, unexplained(o.pods), "its node is to be asked")

	o.nodes = map[string]*corev1.Node{"n1": {}}
	d := plan(o)
	assert.Equal(t, reasons.NodeLost, d.status.Reason, "at once: there is no other cause to wait for")
	assert.Equal(t, "worker 1 (pod bert-training-1-a0 on node n1) was lost with its node: the node is not ready", d.status.FailureReason)
	assert.Equal(t, int32(1), d.status.DisruptionCount)

	o.nodes = map[string]*corev1.Node{"n1": nodeThatIs(corev1.ConditionTrue)}
	assert.Equal(t, mlv1.StateRunning, plan(o).status.State, "the cause may still follow")
}

func TestNodesAreAskedOnlyWhenNothingElseTells(t *testing.T) {
	workers := builders.Workers(builders.TrainingJob("bert").Workers(2).Obj()).Obj()
	pod := func(replica int) *builders.PodBuilder { return builders.Pod(workers, replica).On("n") }
	for name, pods := range map[string][]*corev1.Pod{
		"all run":                  {pod(0).Running().Obj(), pod(1).Running().Obj()},
		"one failed by itself":     {pod(0).Failed(1).Obj(), pod(1).Running().Obj()},
		"one was preempted":        {pod(0).Failed(143).Disrupted("PreemptionByScheduler", "").Obj(), pod(1).Running().Obj()},
		"all ended having lost it": {pod(0).Failed(75).Obj(), pod(1).Failed(137).Obj()},
	} {
		t.Run(name, func(t *testing.T) { assert.Empty(t, unexplained(pods)) })
	}
}

func TestWhyANodeIsLost(t *testing.T) {
	o := observed{nodes: map[string]*corev1.Node{
		"ready": nodeThatIs(corev1.ConditionTrue), "silent": nodeThatIs(corev1.ConditionUnknown), "gone": nil,
	}}
	assert.Empty(t, o.whyLost("ready"))
	assert.Empty(t, o.whyLost("another"))
	assert.Equal(t, "the node is not ready", o.whyLost("silent"))
	assert.Equal(t, "the node no longer exists", o.whyLost("gone"))
}
