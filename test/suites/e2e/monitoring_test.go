//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// The workers' image stands in for TensorBoard's, which is in another registry. It reads the event files that the
// training writes, and answers at TensorBoard's own addresses.
func TestTensorBoardIsReachableAndShowsTheTraining(t *testing.T) {
	t.Parallel()
	job := digits(namespace(t), "watched").pace(50 * time.Millisecond).obj()
	job.Spec.Hyperparameters.Epochs = ptr.To[int32](30)
	job.Spec.Monitoring = mlv1.Monitoring{TensorboardEnabled: ptr.To(true), TensorboardImage: workerImage(t)}
	require.NoError(t, cluster.Create(t.Context(), job))
	reaches(t, job, "two epochs are done", func(job *mlv1.TrainingJob) bool {
		return job.Status.State == mlv1.StateRunning && job.Status.CurrentEpoch >= 3
	})
	child(t, job, &corev1.Service{}, "-tensorboard")

	pods := workers(t, job)
	asker := pods["1"]
	points := askTensorBoard(t, &asker, "/data/plugin/scalars/scalars?run=.&tag=loss")
	var curve [][3]float64 // time, step, value
	require.NoError(t, json.Unmarshal([]byte(points), &curve), points)
	require.GreaterOrEqual(t, len(curve), 2)
	last := len(curve) - 1
	assert.Less(t, curve[0][1], curve[last][1], "steps go on")
	assert.Less(t, curve[last][2], curve[0][2], "and the loss falls")

	master := pods["0"]
	assert.Contains(t, execute(t, &master, `ls "$TENSORBOARD_LOGDIR"`), "events.out.tfevents")
	require.NoError(t, cluster.Delete(t.Context(), job))
}

func TestATrainingEndsAlthoughItsTensorBoardRuns(t *testing.T) {
	t.Parallel()
	job := digits(namespace(t), "short").alone().obj()
	job.Spec.Hyperparameters.Epochs = ptr.To[int32](1)
	job.Spec.Checkpoint = nil // the event files lie in the pod
	job.Spec.Monitoring = mlv1.Monitoring{TensorboardEnabled: ptr.To(true), TensorboardImage: workerImage(t)}
	require.NoError(t, cluster.Create(t.Context(), job))
	done := completes(t, job)
	assert.Zero(t, done.Status.RestartCount)
}

// askTensorBoard asks from a pod of the job, by the Service.
func askTensorBoard(t *testing.T, from *corev1.Pod, path string) string {
	t.Helper()
	url := fmt.Sprintf("http://%s-tensorboard:6006%s", from.Labels[mlv1.LabelTrainingJob], path)
	script := fmt.Sprintf(`python3 -c 'import urllib.request; print(urllib.request.urlopen(%q, timeout=10).read().decode())'`, url)
	return strings.TrimSpace(execute(t, from, script))
}
