package trainingjob

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

func TestAPIBuildersHaveTheDefaultsOfTheAPI(t *testing.T) {
	c := newCluster(t)
	gpus := int32(0)
	job := &mlv1.TrainingJob{
		ObjectMeta: metav1.ObjectMeta{Name: "bert", Namespace: c.namespace},
		Spec:       mlv1.TrainingJobSpec{Model: "resnet50", Dataset: "cifar10", NumWorkers: 1, GPUsPerWorker: &gpus},
	}
	require.NoError(t, c.Create(t.Context(), job))

	built := builders.TrainingJob("bert").Obj()
	assert.Empty(t, cmp.Diff(built.Spec, job.Spec))
	assert.Empty(t, cmp.Diff(built.Status, job.Status))
}

func TestAPIChildrenBelongToTheirJob(t *testing.T) {
	c := newCluster(t)
	c.start(nil)
	job := c.submit(builders.TrainingJob("bert").Workers(2).Checkpoints())

	pods := c.startPods(c.workers(job, 0))
	c.await(job, "Initializing", state(mlv1.StateInitializing))

	owner := metav1.OwnerReference{
		APIVersion: "ml.example.com/v1", Kind: "TrainingJob", Name: "bert", UID: job.UID,
		Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
	}
	for _, child := range []struct {
		object client.Object
		name   string
		owners []metav1.OwnerReference
	}{
		{&batchv1.Job{}, "bert-training", []metav1.OwnerReference{owner}},
		{&corev1.Service{}, "bert-headless", []metav1.OwnerReference{owner}},
		{&corev1.Service{}, "bert-master", []metav1.OwnerReference{owner}},
		{&corev1.ConfigMap{}, "bert-config", []metav1.OwnerReference{owner}},
		{&corev1.ServiceAccount{}, "bert-training", []metav1.OwnerReference{owner}},
		{&corev1.PersistentVolumeClaim{}, "bert-checkpoints", nil}, // checkpoints outlive the job
	} {
		title := fmt.Sprintf("%T %s", child.object, child.name)
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: c.namespace, Name: child.name}, child.object), title)
		assert.Equal(t, child.owners, child.object.GetOwnerReferences(), title)
		assert.Equal(t, "bert", child.object.GetLabels()["training-job"], title)
		assert.Equal(t, "bert", child.object.GetLabels()["trainingjob"], title)
	}
	for index, pod := range pods {
		eventually(t, "the label of pod "+pod.Name, func() bool {
			require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
			return pod.Labels["replica-id"] == strconv.Itoa(index)
		})
		assert.Equal(t, "bert", pod.Labels["training-job"])
		assert.Equal(t, "bert", pod.Labels["trainingjob"])
	}
}

// metricsServer plays a worker that reports metrics, and returns its port.
func metricsServer(t *testing.T, text *atomic.Value) int32 {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(response, text.Load())
	}))
	t.Cleanup(server.Close)
	address, err := url.Parse(server.URL)
	require.NoError(t, err)
	port, err := strconv.ParseInt(address.Port(), 10, 32)
	require.NoError(t, err)
	return int32(port)
}

func TestAPIAJobTrainsToItsEnd(t *testing.T) {
	c := newCluster(t)
	var reported atomic.Value
	reported.Store("training_epoch 1\ntraining_epochs 4\ntraining_progress_ratio 0.25\ntraining_loss 0.9\n")
	port := metricsServer(t, &reported)
	c.start(nil)
	job := c.submit(builders.TrainingJob("bert").Workers(2).Checkpoints().Spec(func(s *mlv1.TrainingJobSpec) { s.Monitoring.MetricsPort = port }))
	assert.Equal(t, mlv1.StatePending, job.Status.State)

	pods := c.startPods(c.workers(job, 0))
	c.await(job, "Initializing", state(mlv1.StateInitializing))
	c.run(pods...)
	c.await(job, "Running", state(mlv1.StateRunning))
	c.await(job, "in epoch 1", func(job *mlv1.TrainingJob) bool { return job.Status.CurrentEpoch == 1 && job.Status.Progress == "25%" })

	reported.Store("training_epoch 2\ntraining_epochs 4\ntraining_progress_ratio 0.5\ntraining_loss 0.5\n")
	now := c.await(job, "in epoch 2", func(job *mlv1.TrainingJob) bool { return job.Status.CurrentEpoch == 2 })
	assert.Equal(t, "50%", now.Status.Progress)
	assert.Equal(t, map[string]float64{"loss": 0.5}, now.Status.Metrics)

	last := `{"training_epoch": 4, "training_epochs": 4, "training_progress_ratio": 1, "training_loss": 0.1, "training_accuracy": 0.97,
		"training_checkpoint_path": "/checkpoints/bert/x/checkpoint-epoch-4", "training_checkpoint_epoch": 4}`
	c.end(0, "", pods[1])
	c.end(0, last, pods[0])
	done := c.await(job, "Completed", state(mlv1.StateCompleted))

	assert.Empty(t, cmp.Diff(conditions{
		"Admitted": admitted, "CheckpointReady": "True StorageReady", "Initialized": "True TrainingCompleted",
		"Running": "False TrainingCompleted", "Complete": "True TrainingCompleted",
	}, outlineOf(desired{status: done.Status}).Conditions))
	assert.Equal(t, mlv1.PhaseSucceeded, done.Status.Phase)
	assert.Equal(t, int32(4), done.Status.CurrentEpoch)
	assert.Equal(t, "100%", done.Status.Progress)
	assert.Equal(t, map[string]float64{"loss": 0.1, "accuracy": 0.97}, done.Status.Metrics, "the figures that no scrape saw")
	assert.Equal(t, &mlv1.CheckpointStatus{Path: "/bert/x/checkpoint-epoch-4", Epoch: 4, ClaimName: "bert-checkpoints"}, done.Status.Checkpoint)
	assert.Equal(t, &mlv1.WorkersStatus{Total: 2, Succeeded: 2}, done.Status.Workers)
	assert.Equal(t, job.Generation, done.Status.ObservedGeneration)
}

func TestAPINothingIsWrittenWhenNothingChanged(t *testing.T) {
	c := newCluster(t)
	m := c.start(nil)
	job := c.submit(builders.TrainingJob("bert").Workers(2).Checkpoints())
	pods := c.startPods(c.workers(job, 0))
	c.run(pods...)
	c.await(job, "Running", state(mlv1.StateRunning))
	c.settled(m, job)

	unchanged := func(t *testing.T) {
		t.Helper()
		before, writes := c.versions(job), m.Written()
		m.lookAgain(job, 5)
		assert.Empty(t, cmp.Diff(before, c.versions(job)))
		assert.Empty(t, m.Written()[len(writes):])
	}
	t.Run("while it runs", unchanged)

	c.end(0, "", pods...)
	c.await(job, "Completed", state(mlv1.StateCompleted))
	c.settled(m, job)
	t.Run("after its end", unchanged)

	m.stop()
	m = c.start(nil)
	t.Run("by a manager that has just started", func(t *testing.T) {
		before := c.versions(job)
		m.lookAgain(job, 3)
		assert.Empty(t, cmp.Diff(before, c.versions(job)))
		assert.Empty(t, m.Written())
	})
}

// settled waits until a manager has no more to write about a job.
func (c *cluster) settled(m *manager, job *mlv1.TrainingJob) {
	c.t.Helper()
	eventually(c.t, "the last write", func() bool {
		before := len(m.Written())
		m.lookAgain(job, 3)
		return len(m.Written()) == before
	})
}

func TestAPITheLifeOfAJobOfFourWorkersTakesTwelveWrites(t *testing.T) {
	c := newCluster(t)
	m := c.start(nil)
	job := c.submit(builders.TrainingJob("bert").Workers(4))

	pods := c.startPods(c.workers(job, 0))
	c.await(job, "Initializing", state(mlv1.StateInitializing))
	for _, pod := range pods { // one by one, as they come
		c.run(pod)
		m.lookAgain(job, 1)
	}
	c.await(job, "Running", state(mlv1.StateRunning))
	for _, pod := range pods {
		c.end(0, "", pod)
		m.lookAgain(job, 1)
	}
	c.await(job, "Completed", state(mlv1.StateCompleted))
	c.settled(m, job)

	assert.LessOrEqual(t, len(m.Written()), 12, "%s", strings.Join(m.Written(), "\n"))
	t.Logf("%d writes", len(m.Written()))
}

func TestAPISuspendAndResume(t *testing.T) {
	c := newCluster(t)
	c.start(nil)
	job := c.submit(builders.TrainingJob("bert").Workers(2))
	first := c.workers(job, 0)
	c.run(c.startPods(first)...)
	job = c.await(job, "Running", state(mlv1.StateRunning))

	c.suspend(job, true)
	c.gone(first.DeepCopy())
	now := c.await(job, "being suspended", func(job *mlv1.TrainingJob) bool { return job.Status.Reason == reasons.Suspended })
	assert.Equal(t, mlv1.StateRunning, now.Status.State, "the pods still end")
	c.collectGarbage()
	job = c.await(job, "Suspended", state(mlv1.StateSuspended))
	assert.Equal(t, mlv1.PhasePending, job.Status.Phase)

	c.suspend(job, false)
	second := c.workers(job, 0)
	c.run(c.startPods(second)...)
	job = c.await(job, "Running again", state(mlv1.StateRunning))

	assert.NotEqual(t, first.UID, second.UID)
	assert.Zero(t, job.Status.RestartCount, "a resumption is no restart")
	assert.Equal(t, "False Resumed", outlineOf(desired{status: job.Status}).Conditions["Suspended"])
}

func (c *cluster) suspend(job *mlv1.TrainingJob, suspend bool) {
	c.t.Helper()
	next := job.DeepCopy()
	next.Spec.Suspend = ptr.To(suspend)
	require.NoError(c.t, c.Patch(c.t.Context(), next, client.MergeFrom(job)))
}

func TestAPIAFinishedJobIsDeletedAfterItsTimeToLive(t *testing.T) {
	c := newCluster(t)
	c.start(nil)
	job := c.submit(builders.TrainingJob("bert").Checkpoints().TTL(1))
	c.end(0, "", c.startPods(c.workers(job, 0))...)

	eventually(t, "the deletion of the TrainingJob", func() bool {
		return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(job), &mlv1.TrainingJob{}))
	})
	var claim corev1.PersistentVolumeClaim
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: c.namespace, Name: "bert-checkpoints"}, &claim))
	assert.Nil(t, claim.DeletionTimestamp, "checkpoints outlive the job")
}
