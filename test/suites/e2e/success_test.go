//go:build e2e

package e2e

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
)

func TestTargetMetricEndsTheTraining(t *testing.T) {
	t.Parallel()
	job := digits(namespace(t), "target").pace(20e6).obj()
	job.Spec.Hyperparameters.Epochs = ptr.To[int32](60)
	job.Spec.SuccessPolicy = &mlv1.SuccessPolicy{TargetAccuracy: ptr.To(0.5)}
	require.NoError(t, cluster.Create(t.Context(), job))
	done := completes(t, job)
	assert.Equal(t, reasons.TargetReached, done.Status.Reason)
	assert.Less(t, done.Status.CurrentEpoch, int32(60))
	assert.GreaterOrEqual(t, done.Status.Metrics["accuracy"], 0.5)
	assert.Equal(t, int32(2), done.Status.Workers.Succeeded, "the workers ended by themselves")
	require.NotNil(t, done.Status.Checkpoint)
	told(t, job, "Completed", reasons.TargetReached)
}

func TestEarlyStoppingEndsTheTraining(t *testing.T) {
	t.Parallel()
	job := digits(namespace(t), "early").alone().pace(10e6).obj()
	job.Spec.Hyperparameters.Epochs, job.Spec.Hyperparameters.LearningRate = ptr.To[int32](60), ptr.To(1e-12)
	job.Spec.SuccessPolicy = &mlv1.SuccessPolicy{EarlyStoppingPatience: ptr.To[int32](2)}
	require.NoError(t, cluster.Create(t.Context(), job))
	done := completes(t, job)
	assert.Equal(t, reasons.EarlyStopped, done.Status.Reason)
	assert.Less(t, done.Status.CurrentEpoch, int32(60))
	assert.NotNil(t, done.Status.Checkpoint)
}

// ignorant is a program that serves figures and knows no success policy. Told to stop, it says what it saved.
const ignorant = `exec /usr/bin/python3 -c '
import http.server, json, os, signal, time
begun = time.time()
def stop(*_):
    with open("/dev/termination-log", "w") as file:
        json.dump({"training_epoch": epoch(), "training_checkpoint_path": "/checkpoints/last", "training_checkpoint_epoch": epoch()}, file)
    os._exit(143)
def epoch():
    return 1 + int((time.time() - begun) / 2)
class Metrics(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"training_epoch %d\ntraining_accuracy 0.9\n" % epoch())
    def log_message(self, *_):
        pass
signal.signal(signal.SIGTERM, stop)
http.server.ThreadingHTTPServer(("", int(os.environ["METRICS_PORT"])), Metrics).serve_forever()
'`

func ignorantJob(t *testing.T, name string, policy *mlv1.SuccessPolicy) *mlv1.TrainingJob {
	job := program(namespace(t), name, ignorant)
	job.Spec.Monitoring.Enabled, job.Spec.SuccessPolicy = nil, policy
	return job
}

func TestTargetMetricStopsAProgramThatDoesNotKnowIt(t *testing.T) {
	t.Parallel()
	job := ignorantJob(t, "unaware", &mlv1.SuccessPolicy{TargetMetric: &mlv1.TargetMetric{Name: "accuracy", Value: ptr.To(0.8)}})
	require.NoError(t, cluster.Create(t.Context(), job))
	done := completes(t, job)
	assert.Equal(t, reasons.TargetReached, done.Status.Reason)
	assert.Zero(t, done.Status.RestartCount, "exit code 143 of a worker that was stopped is no failure")
	assert.Empty(t, done.Status.FailureReason)
	require.NotNil(t, done.Status.Checkpoint, "it had the time to save one")
	assert.Equal(t, "/checkpoints/last", done.Status.Checkpoint.Path)
	told(t, job, "Stopping", "accuracy 0.9 is at least 0.8")
	told(t, job, "Completed", reasons.TargetReached)
}

func TestEarlyStoppingStopsAProgramThatDoesNotKnowIt(t *testing.T) {
	t.Parallel()
	job := ignorantJob(t, "endless", &mlv1.SuccessPolicy{EarlyStoppingPatience: ptr.To[int32](3)})
	require.NoError(t, cluster.Create(t.Context(), job))
	done := completes(t, job)
	assert.Equal(t, reasons.EarlyStopped, done.Status.Reason)
	require.NotNil(t, done.Status.Best)
	assert.Equal(t, "accuracy", done.Status.Best.Metric)
	assert.Equal(t, ptr.To(0.9), done.Status.Best.Value)
	assert.Zero(t, done.Status.RestartCount)
}

func TestTimeToLiveDeletesTheJobAndKeepsItsCheckpoints(t *testing.T) {
	t.Parallel()
	job := digits(namespace(t), "brief").alone().obj()
	job.Spec.Hyperparameters.Epochs = ptr.To[int32](1)
	job.Spec.TTLSecondsAfterFinished = ptr.To[int32](5)
	require.NoError(t, cluster.Create(t.Context(), job))
	done := completes(t, job)
	require.NotNil(t, done.Status.Checkpoint)
	eventually(t, "the job is deleted", func(ctx context.Context) (bool, error) {
		err := cluster.Get(ctx, client.ObjectKeyFromObject(job), job)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
	eventually(t, "its pods are deleted", func(ctx context.Context) (bool, error) {
		var pods corev1.PodList
		err := cluster.List(ctx, &pods, client.InNamespace(job.Namespace), client.MatchingLabels{mlv1.LabelTrainingJob: job.Name})
		return len(pods.Items) == 0, err
	})
	assertOnClaim(t, job.Namespace, done.Status.Checkpoint)
}
