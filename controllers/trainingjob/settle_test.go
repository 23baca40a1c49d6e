package trainingjob

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// bootOf is a node that is ready since it started the time with this ID.
func bootOf(id string) *corev1.Node {
	n := nodeThatIs(corev1.ConditionTrue)
	n.Status.NodeInfo.BootID = id
	return n
}

// silence is what is observed some seconds after noon of a job whose worker 0 lost contact to worker 1 then, on a node that still looks
// ready.
func silence(job *mlv1.TrainingJob, after time.Duration) observed {
	workers := builders.Workers(job).Attempt(int(job.Status.RestartCount)).Obj()
	o := see(job, workers, builders.Pod(workers, 0).On("n0").Failed(podend.ExitPeerLost).After(after-podend.CauseDelay).Obj(),
		builders.Pod(workers, 1).On("n1").Running().Obj()).after(after)
	o.nodes = map[string]*corev1.Node{"n1": bootOf("first")}
	return o
}

// restartedFor is a job that was started again some seconds after noon because a worker lost its peer.
func restartedFor(t *testing.T, job *mlv1.TrainingJob, after time.Duration) *mlv1.TrainingJob {
	t.Helper()
	next := job.DeepCopy()
	next.Status = plan(silence(job, after)).status
	require.Equal(t, mlv1.StateRestarting, next.Status.State)
	require.Equal(t, reasons.PeerLost, next.Status.Reason)
	return next
}

// later is what is observed of a job that has no workers, with the node of the silent one.
func later(job *mlv1.TrainingJob, after time.Duration, node *corev1.Node) observed {
	o := see(job, nil).after(after)
	o.nodes = map[string]*corev1.Node{"n1": node}
	return o
}

// The cluster takes up to 55 seconds to find that a node is dead. The workers that lose their peer need one.
func TestAFailureThatTurnsOutToBeTheLossOfANodeIsNotCounted(t *testing.T) {
	const at = 4 * time.Second
	job := restartedFor(t, runningJob(t, builders.TrainingJob("bert").Workers(2)), at)
	assert.Equal(t, []mlv1.UnsettledFailure{
		{Time: metav1.NewTime(builders.Noon.Add(at)), Nodes: map[string]string{"n1": "first"}, Retried: true},
	}, job.Status.UnsettledFailures)
	assert.Zero(t, job.Status.DisruptionCount)
	assert.Equal(t, podend.SettleInterval, plan(later(job, at, bootOf("first"))).again)

	for why, node := range map[string]*corev1.Node{
		"the node is not ready": nodeThatIs(corev1.ConditionUnknown), "the node no longer exists": nil, "the node was started again": bootOf("second"),
	} {
		settled := plan(later(job, 50*time.Second, node)).status
		assert.Equal(t, int32(1), settled.DisruptionCount, why)
		assert.Equal(t, int32(1), settled.RestartCount, why)
		assert.Empty(t, settled.UnsettledFailures, why)
		assert.Equal(t, reasons.NodeLost, settled.Reason, why)
		assert.Equal(t, "a worker on node n1 was lost with its node: "+why, settled.FailureReason)
		assert.Equal(t, &mlv1.FailureStatus{
			Attempt: 1, Reason: reasons.NodeLost, NodeName: "n1", Time: ptr.To(metav1.NewTime(builders.Noon.Add(at))),
		}, settled.LastFailure)

		job := job.DeepCopy()
		job.Status = settled
		assert.Equal(t, int32(1), plan(later(job, 51*time.Second, node)).status.DisruptionCount, "it is corrected once")
	}

	assert.NotEmpty(t, plan(later(job, at+time.Minute-time.Second, bootOf("first"))).status.UnsettledFailures)
	counted := plan(later(job, at+time.Minute, bootOf("first"))).status
	assert.Empty(t, counted.UnsettledFailures)
	assert.Zero(t, counted.DisruptionCount)
	assert.Equal(t, reasons.PeerLost, counted.LastFailure.Reason)
	assert.True(t, counted.LastFailure.Counted)
}

func TestAJobAtItsLimitWaitsUntilItIsKnownWhetherANodeWasLost(t *testing.T) {
	const at = 3 * time.Second
	for name, b := range map[string]*builders.TrainingJobBuilder{
		reasons.BackoffLimitExceeded: builders.TrainingJob("bert").Workers(2).BackoffLimit(0),
		reasons.RestartPolicyNever:   builders.TrainingJob("bert").Workers(2).RestartPolicy(mlv1.RestartNever),
	} {
		t.Run(name, func(t *testing.T) {
			job := runningJob(t, b)
			held := plan(silence(job, at))
			assert.Equal(t, mlv1.StateRunning, held.status.State)
			assert.Equal(t, reasons.CheckingNodes, held.status.Reason)
			assert.Contains(t, reporting.Message(held.status.Conditions, reasons.ConditionRestarting),
				"the job fails at 2030-01-02T12:01:03Z unless a node is found to be lost until then (n1): ")
			assert.Equal(t, podend.SettleInterval, held.again)
			job.Status = held.status

			o := silence(job, at).after(56 * time.Second)
			assert.Equal(t, held.status.UnsettledFailures, plan(o).status.UnsettledFailures, "it is written down once")
			o = o.after(4 * time.Second)
			counted := plan(o).status
			assert.Equal(t, mlv1.StateFailed, counted.State)
			assert.Equal(t, name, counted.Reason)
			assert.Equal(t, reasons.PeerLost, counted.LastFailure.Reason)
			assert.True(t, counted.LastFailure.Counted)
			assert.Empty(t, counted.UnsettledFailures)

			o.nodes["n1"] = nodeThatIs(corev1.ConditionUnknown)
			assertLost := func(status mlv1.TrainingJobStatus) {
				t.Helper()
				assert.Equal(t, mlv1.StateRestarting, status.State)
				assert.Equal(t, reasons.NodeLost, status.Reason)
				assert.Equal(t, int32(1), status.DisruptionCount)
				assert.Empty(t, status.UnsettledFailures)
			}
			assertLost(plan(o).status)

			back := builders.Pod(o.workers, 1).On("n1").Failed(255).Obj()
			o.pods[1], o.nodes = back, map[string]*corev1.Node{"n1": bootOf("second")}
			assertLost(plan(o).status)

			job.Spec.Suspend = ptr.To(true)
			job.Status = plan(see(job, nil)).status
			assert.Empty(t, plan(see(job, nil)).status.UnsettledFailures, "a job that is suspended waits for nothing")
		})
	}
}

func TestAFailureDoesNotHideOneThatIsNotSettled(t *testing.T) {
	job := restartedFor(t, runningJob(t, builders.TrainingJob("bert").Workers(2).BackoffLimit(1)), 3*time.Second)
	workers := builders.Workers(job).Attempt(1).Obj()
	o := see(job, workers, builders.Pod(workers, 0).Running().Obj(), builders.Pod(workers, 1).Failed(1).Obj()).after(30 * time.Second)
	o.nodes = map[string]*corev1.Node{"n1": bootOf("first")}

	waits := plan(o).status
	assert.Equal(t, reasons.CheckingNodes, waits.Reason, "the first failure may leave one more restart")
	assert.Equal(t, job.Status.UnsettledFailures, waits.UnsettledFailures)
	assert.Equal(t, mlv1.StateFailed, plan(o.after(33*time.Second)).status.State)

	o.nodes["n1"] = nil
	again := plan(o).status
	assert.Equal(t, mlv1.StateRestarting, again.State)
	assert.Equal(t, int32(2), again.RestartCount)
	assert.Equal(t, int32(1), again.DisruptionCount)
	assert.True(t, again.LastFailure.Counted)

	job = restartedFor(t, runningJob(t, builders.TrainingJob("bert").Workers(2)), 3*time.Second)
	twice := restartedFor(t, job, 20*time.Second)
	require.Len(t, twice.Status.UnsettledFailures, 2)
	assert.Equal(t, job.Status.UnsettledFailures[0], twice.Status.UnsettledFailures[0])
	assert.Equal(t, int32(2), plan(later(twice, 50*time.Second, nil)).status.DisruptionCount)
}

func TestOnlySilentWorkersLeaveAFailureUnsettled(t *testing.T) {
	job := runningJob(t, builders.TrainingJob("bert").Workers(2).BackoffLimit(0))
	workers := builders.Workers(job).Obj()
	lost := func(replica int) *corev1.Pod {
		return builders.Pod(workers, replica).On("n").Failed(podend.ExitPeerLost).Obj()
	}
	for name, pods := range map[string][]*corev1.Pod{
		"a crash":               {builders.Pod(workers, 0).On("n0").Failed(1).Obj(), builders.Pod(workers, 1).On("n1").Running().Obj()},
		"all ended":             {lost(0), lost(1)},
		"one was never started": {lost(0), builders.Pod(workers, 1).Obj()},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, mlv1.StateFailed, plan(see(job, workers, pods...).after(podend.CauseDelay)).status.State)
		})
	}
}

func TestAPIACountIsCorrectedByAnotherManager(t *testing.T) {
	c := newCluster(t)
	m := c.start(nil)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}}
	require.NoError(t, c.Create(t.Context(), node))
	t.Cleanup(func() { assert.NoError(t, c.Delete(context.Background(), node)) })
	c.becomes(node, corev1.ConditionTrue)
	job := c.submit(builders.TrainingJob("bert").Workers(2))
	pods := c.startPods(c.workers(job, 0))
	require.NoError(t, c.SubResource("binding").Create(t.Context(), pods[1], &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: node.Name}}))
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(pods[1]), pods[1]))
	c.run(pods...)
	c.await(job, "Running", state(mlv1.StateRunning))

	c.end(podend.ExitPeerLost, "", pods[0])
	restarted := c.await(job, "started again", func(job *mlv1.TrainingJob) bool { return job.Status.RestartCount == 1 })
	require.Len(t, restarted.Status.UnsettledFailures, 1)
	assert.Zero(t, restarted.Status.DisruptionCount)
	m.stop()
	c.becomes(node, corev1.ConditionUnknown)
	m = c.start(nil)

	corrected := c.await(job, "settled", func(job *mlv1.TrainingJob) bool { return len(job.Status.UnsettledFailures) == 0 })
	assert.Equal(t, int32(1), corrected.Status.DisruptionCount)
	assert.Equal(t, int32(1), corrected.Status.RestartCount)
	m.lookAgain(job, 2)
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(job), corrected))
	assert.Equal(t, int32(1), corrected.Status.DisruptionCount, "once")
}

// becomes sets whether a node is ready.
func (c *cluster) becomes(node *corev1.Node, ready corev1.ConditionStatus) {
	c.t.Helper()
	next := node.DeepCopy()
	next.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, Reason: "Kubelet"}}
	require.NoError(c.t, c.Status().Patch(c.t.Context(), next, client.MergeFrom(node)))
}
