//go:build e2e

package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
)

// The whole story of a training, with nothing done by hand: it runs on an instance made for it, whose metadata server says
// that it is taken back. The training saves by its own means within the notice, leaves, and goes on on the next instance.
func TestATrainingOutlivesItsInstance(t *testing.T) { outlivesItsInstance(t, "") }

// In a queue there are no pods for which the first instance and the next could be created.
func TestAQueuedTrainingOutlivesItsInstance(t *testing.T) {
	queue := &aiplatformv1alpha1.AIJobQueue{ObjectMeta: metav1.ObjectMeta{GenerateName: "spot-"}}
	require.NoError(t, cluster.Create(t.Context(), queue))
	t.Cleanup(func() { _ = cluster.Delete(context.WithoutCancel(t.Context()), queue) })
	outlivesItsInstance(t, queue.Name)
}

func outlivesItsInstance(t *testing.T, queue string) {
	t.Helper()
	server, ns := s3Server(t), namespace(t)
	server.MakeBucket(bucket)
	credentials(t, ns, server)
	s := newSpotCloud(t, ns, managerImage(t), workerImage(t))
	job := digits(ns, "learns").pace(150e6).in(server).obj()
	job.Spec.Scheduling = &mlv1.Scheduling{
		QueueName:    queue,
		Spot:         &mlv1.SpotReference{Name: s.vm.Name},
		NodeSelector: map[string]string{spotv1alpha1.LabelSpotInstanceVM: s.vm.Name},
	}
	job.Spec.Checkpoint.Frequency = 100 // only the notice has one taken
	require.NoError(t, cluster.Create(t.Context(), job))
	t.Cleanup(func() {
		_ = cluster.Delete(context.WithoutCancel(t.Context()), job, &client.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)})
	})
	reaches(t, job, "it trains", func(job *mlv1.TrainingJob) bool {
		return job.Status.State == mlv1.StateRunning && job.Status.CurrentEpoch >= 2
	})
	old := workers(t, job)["0"].Spec.NodeName
	eventually(t, "the node agent runs on the instance", agentRunsOn(operatorNamespace, old))

	at := time.Now()
	require.NoError(t, s.Preempt(old))
	leaving := reaches(t, job, "it restarts", func(job *mlv1.TrainingJob) bool { return job.Status.RestartCount == 1 })
	left := time.Since(at)
	assert.NotEmpty(t, leaving.Status.Preemption.CheckpointPath)
	reaches(t, job, "it trains again", func(job *mlv1.TrainingJob) bool {
		return job.Status.State == mlv1.StateRunning && job.Status.RestartCount == 1
	})
	t.Logf("from the notice: it left after %s, with checkpoint %s, and trained on the next instance after %s",
		left.Round(100*time.Millisecond), leaving.Status.Preemption.CheckpointPath, time.Since(at).Round(100*time.Millisecond))
	done := completes(t, job)

	assert.NotEqual(t, old, workers(t, job)["0"].Spec.NodeName)
	assert.Positive(t, restoredStep(t, job), "it did not begin at the first step")
	assert.Equal(t, int32(1), done.Status.RestartCount, "the end of the instance is no second loss")
	assert.Equal(t, int32(1), done.Status.DisruptionCount)
	s.scalesToZero(t)
}
