package trainingjob

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// A pod that stays on a dead node would answer to the host name of the worker that comes after it.
func TestOverduePodsAreDeletedBeforeTheNextAttemptStarts(t *testing.T) {
	job := failingJob(t, builders.TrainingJob("bert").Workers(2), 1)
	overdue := builders.Pod(builders.Workers(job).Obj(), 0).On("n0").Running().Deleting(0).Obj()
	failed := builders.Pod(builders.Workers(job).Obj(), 1).Failed(1).Deleting(0).Obj()

	waits := plan(see(job, nil, overdue, failed).after(podend.Overdue - time.Second))
	assert.Empty(t, waits.expelled)
	assert.Empty(t, waits.apply)
	assert.Equal(t, time.Second, waits.again)

	starts := plan(see(job, nil, overdue, failed).after(podend.Overdue))
	assert.Equal(t, map[*corev1.Pod]int64{overdue: 0}, starts.expelled, "without a grace period")
	assert.Equal(t, []string{"ServiceAccount bert-training", "Job bert-training, attempt 1"}, outlineOf(starts).Apply)

	job.Spec.Suspend = ptr.To(true)
	assert.Equal(t, map[*corev1.Pod]int64{overdue: 0}, plan(see(job, nil, overdue).after(podend.Overdue)).expelled, "a suspended job leaves none either")
}

func TestAPIAnOverduePodIsGoneBeforeTheNextAttemptStarts(t *testing.T) {
	c := newCluster(t)
	c.ahead = time.Hour
	m := c.start(nil)
	job := c.submit(builders.TrainingJob("bert").Workers(2))
	first := c.workers(job, 0)
	pods := c.startPods(first)
	require.NoError(t, c.SubResource("binding").Create(t.Context(), pods[1], &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "dead"}}))
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(pods[1]), pods[1]))
	c.run(pods...)
	c.await(job, "Running", state(mlv1.StateRunning))

	require.NoError(t, c.Delete(t.Context(), pods[0]))
	require.NoError(t, c.Delete(t.Context(), pods[1])) // and no kubelet ends it
	eventually(t, "the next attempt", func() bool {
		var now batchv1.Job
		err := c.Get(t.Context(), client.ObjectKeyFromObject(first), &now)
		return err == nil && build.AttemptOf(&now) == 1
	})

	c.gone(pods[1])
	var podsAndJobs []string
	for _, write := range m.Written() {
		method, path, _ := strings.Cut(write, " ")
		if method == "DELETE" && strings.HasSuffix(path, "/pods/"+pods[1].Name) || method == "POST" && strings.HasSuffix(path, "/jobs") {
			podsAndJobs = append(podsAndJobs, method)
		}
	}
	assert.Equal(t, []string{"POST", "DELETE", "POST"}, podsAndJobs, "the pod goes before the second Job comes")
}

// The Job controller replaces only pods that have failed, which no kubelet of a dead node reports.
func TestAnElasticWorkerOnADeadNodeIsReplaced(t *testing.T) {
	job := runningJob(t, elastic())
	workers := builders.Workers(job).Obj()
	first, stuck := builders.Pod(workers, 0).Running().Obj(), builders.Pod(workers, 1).On("n1").Running().Deleting(0)

	waits := plan(see(job, workers, first, stuck.Obj()).after(podend.Overdue - time.Second))
	assert.Empty(t, waits.dead, "it may still end by itself")
	assert.Equal(t, time.Second, waits.again)

	forced := stuck.Obj() // by a user, and the Job's finalizer keeps it
	forced.DeletionGracePeriodSeconds = ptr.To[int64](0)
	for _, pod := range []*corev1.Pod{stuck.Obj(), forced} {
		gives := plan(see(job, workers, first, pod).after(podend.Overdue))
		assert.Equal(t, []*corev1.Pod{pod}, gives.dead)
		assert.Equal(t, mlv1.StateRunning, gives.status.State)
		assert.Equal(t, reasons.WorkerLost, gives.status.Reason)
	}

	job.Status = waits.status
	failed := stuck.Failed(0).Disrupted(reasons.NodeLost, "").Obj()
	assert.Empty(t, plan(see(job, workers, first, failed).after(time.Hour)).dead, "once")
	back := plan(see(job, workers, first, failed, builders.Pod(workers, 1).Again(time.Minute).Running().Obj()).after(time.Hour)).status
	assert.Equal(t, reasons.WorkersRunning, back.Reason)
	assert.Zero(t, back.WorkerFailures, "the loss of a node is no failure")
}

func TestAPIAnElasticWorkerOnADeadNodeIsReportedAsFailedAndDeleted(t *testing.T) {
	c := newCluster(t)
	c.ahead = time.Hour
	c.start(nil)
	job := c.submit(elastic())
	pods := c.startPods(c.workers(job, 0))
	const finalizer = "batch.kubernetes.io/job-tracking" // the Job controller removes it once the pod has failed
	tracked := pods[1].DeepCopy()
	tracked.Finalizers = []string{finalizer}
	require.NoError(t, c.Patch(t.Context(), tracked, client.MergeFrom(pods[1])))
	require.NoError(t, c.SubResource("binding").Create(t.Context(), pods[1], &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "dead"}}))
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(pods[1]), pods[1]))
	c.run(pods...)
	c.await(job, "Running", state(mlv1.StateRunning))

	require.NoError(t, c.Delete(t.Context(), pods[1]))
	eventually(t, "the pod being reported as failed", func() bool {
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(pods[1]), pods[1]))
		return pods[1].Status.Phase == corev1.PodFailed && *pods[1].DeletionGracePeriodSeconds == 0
	})
	reason, _ := workerProgram.Loss(pods[1])
	assert.Equal(t, reasons.NodeLost, reason)
	untracked := pods[1].DeepCopy()
	untracked.Finalizers = nil
	require.NoError(t, c.Patch(t.Context(), untracked, client.MergeFrom(pods[1])))
	c.gone(pods[1])
}
