package trainingjob

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/nodenotice"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/report"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// node creates a node, which the API server keeps for all tests, so that its name is made unique.
func (c *cluster) node() *corev1.Node {
	c.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: c.namespace + "-"}}
	require.NoError(c.t, c.Create(c.t.Context(), node))
	c.t.Cleanup(func() { _ = client.IgnoreNotFound(c.Delete(c.t.Context(), node)) })
	return node
}

// bind puts a pod onto a node as the scheduler does.
func (c *cluster) bind(pod *corev1.Pod, node *corev1.Node) {
	c.t.Helper()
	require.NoError(c.t, c.SubResource("binding").Create(c.t.Context(), pod, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: node.Name}}))
	require.NoError(c.t, c.Get(c.t.Context(), client.ObjectKeyFromObject(pod), pod))
}

// notice leaves a notice on a node, and returns when.
func (c *cluster) notice(node *corev1.Node) time.Time {
	c.t.Helper()
	now := time.Now()
	require.NoError(c.t, nodenotice.Mark(c.t.Context(), c.Client, node.Name, nodenotice.Notice{Source: nodenotice.MetadataServer, Time: now}))
	return now
}

// told are the reasons of the events about a job.
func (c *cluster) told(job *mlv1.TrainingJob) map[string]string {
	c.t.Helper()
	var list eventsv1.EventList
	require.NoError(c.t, c.List(c.t.Context(), &list, client.InNamespace(c.namespace)))
	all := map[string]string{}
	for i := range list.Items {
		if list.Items[i].Regarding.Name == job.Name {
			all[list.Items[i].Reason] = list.Items[i].Note
		}
	}
	return all
}

func TestAPIANoticeIsActedUponOnceWithinItsTimeAcrossManagers(t *testing.T) {
	c := newCluster(t)
	agent := c.playAgent(syncingReport())
	m := c.start(nil)
	job := c.submit(builders.TrainingJob("bert").Workers(2).Checkpoints())
	first := c.workers(job, 0)
	pods := c.startPods(first)
	stays, goes := c.node(), c.node()
	c.bind(pods[0], stays)
	c.bind(pods[1], goes)
	c.runWithAgent(pods...)
	c.await(job, "Running", state(mlv1.StateRunning))

	since := c.notice(goes)
	eventually(t, "the request", func() bool { return len(agent.requests()) == 1 })
	assert.Less(t, time.Since(since), 5*time.Second, "at once, not in a next round")
	c.await(job, "asking", func(job *mlv1.TrainingJob) bool { return job.Status.Preemption != nil })
	eventually(t, "the first event", func() bool { return c.told(job)["PreemptionNotice"] != "" }) // an end of the manager may lose it
	m.stop()
	m = c.start(nil)
	m.lookAgain(job, 3)
	agent.say(func(r *report.Report) {
		r.Request.State, r.Request.Path = report.RequestDone, "/checkpoints/bert/x/checkpoint-step-5"
	})
	left := c.await(job, "leaving", func(job *mlv1.TrainingJob) bool { return job.Status.RestartCount == 1 })
	assert.Equal(t, "/bert/x/checkpoint-step-5", left.Status.Preemption.CheckpointPath)
	assert.Equal(t, reasons.NodePreempted, left.Status.Reason)
	eventually(t, "the pod on the node is told how much time it has", func() bool {
		var pod corev1.Pod
		err := c.Get(t.Context(), client.ObjectKeyFromObject(pods[1]), &pod)
		return client.IgnoreNotFound(err) == nil && (err != nil || pod.DeletionTimestamp != nil && pod.DeletionTimestamp.Time.Before(since.Add(nodenotice.Grace)))
	})
	require.NoError(t, client.IgnoreNotFound(c.Delete(t.Context(), pods[1], client.GracePeriodSeconds(0))))
	c.gone(first)

	second := c.startPods(c.workers(job, 1))
	c.bind(second[0], stays)
	c.bind(second[1], goes) // as if it tolerated the taint
	c.runWithAgent(second...)
	c.await(job, "Running again", state(mlv1.StateRunning))
	m.stop()
	m = c.start(nil)
	m.lookAgain(job, 5)
	again := c.await(job, "Running still", state(mlv1.StateRunning))
	assert.Equal(t, int32(1), again.Status.RestartCount)
	assert.Equal(t, int32(1), again.Status.DisruptionCount)
	assert.Equal(t, []string{"preemption-1"}, agent.requests())
	eventually(t, "the events", func() bool {
		told := c.told(job)
		return told["PreemptionNotice"] != "" && told["PreemptionCheckpoint"] != "" && strings.Contains(told["Restarting"], "the provider takes its node back")
	})
}

func TestAPIASpotJobFollowsItsSpotInstanceVM(t *testing.T) {
	c := newCluster(t)
	c.start(nil)
	job := c.submit(onSpot(builders.TrainingJob("bert")))
	workers := c.workers(job, 0)
	assert.Equal(t, "gpus", workers.Spec.Template.Labels[spotv1alpha1.LabelSpotInstanceVM])
	capacity := func(reason string) func(*mlv1.TrainingJob) bool {
		return func(job *mlv1.TrainingJob) bool {
			is := meta.FindStatusCondition(job.Status.Conditions, reasons.ConditionSpotCapacity)
			return is != nil && is.Reason == reason
		}
	}
	c.await(job, "without its SpotInstanceVM", capacity(reasons.SpotInstanceVMNotFound))

	vm := &spotv1alpha1.SpotInstanceVM{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "gpus"},
		Spec: spotv1alpha1.SpotInstanceVMSpec{
			VMImage: "projects/p/global/images/node",
			GCP:     spotv1alpha1.GCP{Project: "my-project", Zone: "us-central1-a", MachineType: "n1-standard-4"},
		},
	}
	require.NoError(t, c.Create(t.Context(), vm))
	c.await(job, "with its SpotInstanceVM", capacity(reasons.SpotInstanceVMReady))
	next := vm.DeepCopy()
	next.Status.Conditions = []metav1.Condition{{
		Type: reasons.ConditionCapacityAvailable, Status: metav1.ConditionFalse, LastTransitionTime: metav1.Now(),
		Reason: reasons.ZoneExhausted, Message: "no zone has one",
	}}
	require.NoError(t, c.Status().Patch(t.Context(), next, client.MergeFrom(vm)))
	c.await(job, "without capacity", capacity(reasons.ZoneExhausted))
	require.NoError(t, c.Delete(t.Context(), vm))
	c.await(job, "without its SpotInstanceVM again", capacity(reasons.SpotInstanceVMNotFound))
}

func TestAPIAJobOnSpotKeepsToItsWrites(t *testing.T) {
	c := newCluster(t)
	c.playAgent(report.Report{Phase: report.PhaseSyncing})
	m := c.start(nil)
	vm := &spotv1alpha1.SpotInstanceVM{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "gpus"},
		Spec: spotv1alpha1.SpotInstanceVMSpec{
			VMImage: "projects/p/global/images/node",
			GCP:     spotv1alpha1.GCP{Project: "my-project", Zone: "us-central1-a", MachineType: "n1-standard-4"},
		},
	}
	require.NoError(t, c.Create(t.Context(), vm))
	elsewhere := c.node()
	job := c.submit(onSpot(builders.TrainingJob("bert").InStorage(builders.S3Storage()).Namespace(c.namespace).Workers(4)))
	pods := c.startPods(c.workers(job, 0))
	c.runWithAgent(pods...)
	c.await(job, "Running", state(mlv1.StateRunning))
	c.notice(elsewhere)
	c.endWithAgent(report.Report{}, pods[1:]...)
	c.endWithAgent(report.Report{Phase: report.PhaseDone, Newest: stored("s3://models/last", 400), Kept: 3}, pods[0])
	c.await(job, "Completed", state(mlv1.StateCompleted))
	c.settled(m, job)
	assert.LessOrEqual(t, len(m.Written()), 12+1, "%s", strings.Join(m.Written(), "\n")) // and that the storage is ready
}
