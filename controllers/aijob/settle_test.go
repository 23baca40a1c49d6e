package aijob

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

func nodeThatIs(ready corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{Status: corev1.NodeStatus{
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}, NodeInfo: corev1.NodeSystemInfo{BootID: "first"},
	}}
}

// silence is a gang whose member 0 lost contact to member 1 at noon, a moment later. The node of member 1 still looks ready.
func silence(b *builders.AIJobBuilder) *world {
	w := worldOf(b).running("a", "b")
	exit(w.pods[0], podend.ExitPeerLost, "", 0)
	w.nodes = map[string]*corev1.Node{"b": nodeThatIs(corev1.ConditionTrue)}
	return w.at(podend.CauseDelay)
}

func TestARetryThatTurnsOutToBeTheLossOfANodeIsNone(t *testing.T) {
	w := silence(gang().Retries(1, time.Second))
	w.job.Status = plan(w.observed).status
	require.Equal(t, "Retrying PeerLost", short(w.job.Status))
	assert.Equal(t, []aiplatformv1alpha1.UnsettledFailure{
		{Time: metav1.NewTime(builders.Noon.Add(podend.CauseDelay)), Nodes: map[string]string{"b": "first"}, Retried: true},
	}, w.job.Status.UnsettledFailures)
	require.Equal(t, int32(1), w.job.Status.RetryCount)
	try := attemptOf(&w.job.Status)

	w.nodes["b"] = nodeThatIs(corev1.ConditionUnknown)
	lost := plan(w.at(50 * time.Second).observed)
	assert.Zero(t, lost.status.RetryCount)
	assert.Equal(t, int32(1), lost.status.PreemptionCount)
	assert.Empty(t, lost.status.UnsettledFailures)
	assert.Equal(t, try, attemptOf(&lost.status), "names of pods do not change")
	assert.Empty(t, steps(lost), "it is written before anything is done")

	w.nodes["b"] = nodeThatIs(corev1.ConditionTrue)
	counted := plan(w.at(podend.CauseDelay + time.Minute).observed).status
	assert.Equal(t, int32(1), counted.RetryCount)
	assert.Empty(t, counted.UnsettledFailures)
}

func TestAGangThatUsedUpItsRetriesWaitsUntilItIsKnownWhetherANodeWasLost(t *testing.T) {
	w := silence(gang().Retries(0, time.Second))
	w.job.Status = plan(w.observed).status
	require.Equal(t, "Running CheckingNodes", short(w.job.Status))
	assert.Equal(t, "False CheckingNodes", conditions(w.job.Status)["Ready"])
	assert.Contains(t, w.job.Status.Message, "the job becomes a dead letter at 2030-01-02T12:01:03Z unless a node is found to be lost until then (b): ")
	d := plan(w.at(time.Minute).observed)
	assert.Equal(t, "Running CheckingNodes", short(d.status))
	assert.Equal(t, w.job.Status.UnsettledFailures, d.status.UnsettledFailures, "it is written down once")
	assert.Equal(t, 3*time.Second, d.again)

	w.at(podend.CauseDelay + time.Minute)
	dead := plan(w.observed).status
	assert.Equal(t, "DeadLetter RetriesExhausted", short(dead))
	assert.Empty(t, dead.UnsettledFailures)

	w.nodes["b"] = nil
	lost := plan(w.observed).status
	assert.Equal(t, "Queued NodeLost", short(lost))
	assert.Equal(t, "a pod on node b was lost with its node: the node no longer exists; the job is queued again, which does not count as a retry", lost.Message)
	assert.Equal(t, int32(1), lost.PreemptionCount)
	assert.Zero(t, lost.RetryCount)
	assert.Empty(t, lost.UnsettledFailures)

	w.preempted()
	w.job.Status = plan(w.observed).status
	w.decision.Preempted, w.pods = nil, nil
	assert.Empty(t, plan(w.observed).status.UnsettledFailures, "a job that lost its place waits for nothing")
}

func TestANodeThatIsKnownToBeDeadIsToldAtOnce(t *testing.T) {
	w := silence(gang().Retries(0, time.Second))
	w.nodes["b"] = nodeThatIs(corev1.ConditionUnknown)
	assert.Equal(t, "Queued NodeLost", short(plan(w.observed).status))

	w = silence(gang().Retries(0, time.Second))
	exit(w.pods[0], 1, "", 0)
	assert.Equal(t, "DeadLetter RetriesExhausted", short(plan(w.observed).status), "a crash is not explained by nodes")
}
