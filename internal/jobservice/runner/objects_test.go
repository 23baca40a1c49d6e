package runner

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/auth"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/rest"
)

func amounts(cpu, memory, gpus string) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory), gpuResource: resource.MustParse(gpus),
	}
}

func TestNodesTellWhatTheirPodsLeave(t *testing.T) {
	node := func(name, accelerator string) corev1.Node {
		object := corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{"accelerator": accelerator}, Annotations: map[string]string{"long": "text"},
		}}
		object.Status.Allocatable = amounts("8", "32Gi", "4")
		object.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		trimmed, err := trimNode(&object)
		require.NoError(t, err)
		return *trimmed.(*corev1.Node)
	}
	pod := func(node string, phase corev1.PodPhase) corev1.Pod {
		object := corev1.Pod{Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{
			Image: "x", Env: []corev1.EnvVar{{Name: "A"}}, Resources: corev1.ResourceRequirements{Requests: amounts("500m", "1Gi", "3")},
		}}}}
		object.Status.Phase = phase
		trimmed, err := trimPod(&object)
		require.NoError(t, err)
		assert.Empty(t, trimmed.(*corev1.Pod).Spec.Containers[0].Env)
		return *trimmed.(*corev1.Pod)
	}
	cluster := &aiplatformv1alpha1.ComputeCluster{}
	cluster.Spec.NodeSelector = map[string]aiplatformv1alpha1.LabelValue{"accelerator": "a100"}
	nodes := nodesOf(cluster, []corev1.Node{node("b", "a100"), node("a", "a100"), node("c", "h100")}, []corev1.Pod{
		pod("a", corev1.PodRunning), pod("a", corev1.PodSucceeded), pod("c", corev1.PodRunning), pod("", corev1.PodPending),
		pod("b", corev1.PodRunning), pod("b", corev1.PodPending),
	})
	assert.Equal(t, []rest.Node{
		{
			Name: "a", Ready: true, GPUs: rest.Count{Total: 4, Available: 1},
			CPU: rest.Amount{Total: "8", Available: "7500m"}, Memory: rest.Amount{Total: "32Gi", Available: "31Gi"},
		},
		{
			Name: "b", Ready: true, GPUs: rest.Count{Total: 4, Available: 0}, // more was promised than there is
			CPU: rest.Amount{Total: "8", Available: "7"}, Memory: rest.Amount{Total: "32Gi", Available: "30Gi"},
		},
	}, nodes)
}

func TestObjectsOfTheCluster(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	cluster := &aiplatformv1alpha1.ComputeCluster{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}
	cluster.Spec.Capacity = &aiplatformv1alpha1.ClusterCapacity{MaxGPUs: ptr.To[int32](64)}
	queue := &aiplatformv1alpha1.AIJobQueue{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}, Spec: aiplatformv1alpha1.AIJobQueueSpec{MaxConcurrency: 7}}
	for _, object := range []client.Object{cluster, queue} {
		require.NoError(t, w.cluster.direct.Create(ctx, object))
		t.Cleanup(func() { assert.NoError(t, w.cluster.direct.Delete(context.WithoutCancel(ctx), object)) })
	}
	cluster.Status = aiplatformv1alpha1.ComputeClusterStatus{Health: aiplatformv1alpha1.ClusterDegraded, TotalNodes: 3, TotalGPUs: 8, FreeGPUs: 5, RunningJobs: 2}
	require.NoError(t, w.cluster.direct.Status().Update(ctx, cluster))

	want := rest.Cluster{
		Name: w.namespace, Status: "degraded", TotalNodes: 3, AvailableGPUs: 5, TotalGPUs: 8, RunningJobs: 2,
		Capacity: &rest.ClusterCapacity{MaxGPUs: ptr.To(64)},
	}
	w.eventually("the cluster is reported", func(c *assert.CollectT) {
		all, err := w.cluster.Clusters(ctx)
		require.NoError(c, err)
		assert.Contains(c, all, want)
	})
	one, err := w.cluster.Cluster(ctx, w.namespace)
	require.NoError(t, err)
	want.Nodes = []rest.Node{}
	assert.Equal(t, want, one)
	w.eventually("the queue's limit is told", func(c *assert.CollectT) {
		limits, err := w.cluster.QueueLimits(ctx)
		require.NoError(c, err)
		assert.Equal(c, 7, limits[w.namespace])
	})
	_, err = w.cluster.Cluster(ctx, "none")
	assert.ErrorIs(t, err, jobs.ErrNotFound)
	_, err = w.cluster.Workflow(ctx, w.namespace, "none")
	assert.ErrorIs(t, err, jobs.ErrNotFound)
	assert.NoError(t, w.cluster.Check(ctx))
}

func TestAnOutageIsToldAsSuch(t *testing.T) {
	config := api.Config(t)
	config.Host = "127.0.0.1:1" // no server listens there
	cluster := newCluster(t, config)
	ctx := t.Context()
	assert.ErrorIs(t, cluster.Check(ctx), jobs.ErrUnavailable)
	_, _, err := cluster.Review(ctx, "token")
	assert.ErrorIs(t, err, jobs.ErrUnavailable)
	_, _, err = cluster.Allowed(ctx, auth.User{Username: "alice"}, auth.Attributes{Verb: "create", Resource: "aijobs", Namespace: "default"})
	assert.ErrorIs(t, err, jobs.ErrUnavailable)
	_, err = cluster.Workflow(ctx, "default", "w")
	assert.ErrorIs(t, err, jobs.ErrUnavailable)
	_, err = cluster.Logs(ctx, jobs.Job{ID: "a", Namespace: "default"}, rest.LogOptions{Tail: 1})
	assert.ErrorIs(t, err, jobs.ErrUnavailable)
}

// A service that starts while the API server does not answer works as soon as it does.
func TestTheDispatcherWaitsForACacheThatDoesNotRunYet(t *testing.T) {
	cluster, err := NewCluster(api.Config(t), Options{QPS: -1})
	require.NoError(t, err)
	d := NewDispatcher(cluster, newStore(), settings(), NewMetrics(prometheus.NewRegistry()), slog.New(slog.DiscardHandler))
	soon, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = d.synced(soon)
	require.Error(t, err, "nothing is known of the AIJobs that there are")
}

func TestTheDispatcherWaitsForTheAPIServer(t *testing.T) {
	w := newWorld(t)
	down := &outage{}
	down.set(503)
	down.all = true
	config := api.Config(t)
	config.Wrap(down.wrap)
	w.cluster = newCluster(t, config)
	w.replica()
	id := w.submit()
	w.eventually("it is tried", func(c *assert.CollectT) { assert.Greater(c, down.refused(), 0) })
	job, err := w.store.Get(t.Context(), id)
	require.NoError(t, err)
	assert.Zero(t, job.Fence, "nothing is leased that cannot be run")
	down.set(0)
	w.aijob(id)
}
