//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

func TestTwoWorkersTrainTogetherUntilCompleted(t *testing.T) {
	t.Parallel()
	job := digits(namespace(t), "train").pace(100e6).obj()
	require.NoError(t, cluster.Create(t.Context(), job))

	midway := reaches(t, job, "an epoch is done", func(job *mlv1.TrainingJob) bool {
		return job.Status.State == mlv1.StateRunning && job.Status.CurrentEpoch >= 2 && job.Status.Progress != ""
	})
	assert.Equal(t, mlv1.PhaseRunning, midway.Status.Phase)
	assert.Equal(t, int32(8), midway.Status.TotalEpochs)
	firstLoss := midway.Status.Metrics["loss"]
	assert.Positive(t, firstLoss)
	assert.Subset(t, columns(t, job), []string{"Name", "State", "Progress", "Epoch", "Age"})

	done := completes(t, job)
	assert.Equal(t, "100%", done.Status.Progress)
	assert.Equal(t, int32(8), done.Status.CurrentEpoch)
	assert.Less(t, done.Status.Metrics["loss"], firstLoss, "the loss falls")
	assert.Greater(t, done.Status.Metrics["accuracy"], 0.8)
	assert.Zero(t, done.Status.RestartCount)
	assert.Equal(t, &mlv1.WorkersStatus{Total: 2, Succeeded: 2}, done.Status.Workers)

	pods := workers(t, job)
	require.Len(t, pods, 2)
	for rank, pod := range pods {
		assert.Contains(t, log(t.Context(), &pod), "rank "+rank+" of 2 joined", "both ranks take part")
		assert.Regexp(t, `rank `+rank+` trained [1-9]\d* samples`, log(t.Context(), &pod))
	}

	checkpoint := done.Status.Checkpoint
	require.NotNil(t, checkpoint)
	assert.Equal(t, int32(8), checkpoint.Epoch)
	assert.Equal(t, "train-checkpoints", checkpoint.ClaimName)
	assert.Positive(t, checkpoint.SizeBytes)
	assertOnClaim(t, job.Namespace, checkpoint)
}

// columns are the columns that the API server gives kubectl. Each must have a cell.
func columns(t *testing.T, job *mlv1.TrainingJob) []string {
	t.Helper()
	text, err := cluster.typed.CoreV1().RESTClient().Get().
		AbsPath("/apis/ml.example.com/v1/namespaces/"+job.Namespace+"/trainingjobs/"+job.Name).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(t.Context()).Raw()
	require.NoError(t, err)
	var table metav1.Table
	require.NoError(t, json.Unmarshal(text, &table))
	require.Len(t, table.Rows, 1)
	var names []string
	for i, column := range table.ColumnDefinitions {
		if column.Priority == 0 {
			names = append(names, column.Name)
			assert.NotEmpty(t, table.Rows[0].Cells[i], "column %s", column.Name)
		}
	}
	return names
}

// assertOnClaim looks at the checkpoint from a pod of its own that mounts the claim.
func assertOnClaim(t *testing.T, ns string, checkpoint *mlv1.CheckpointStatus) {
	t.Helper()
	worker := workerImage(t)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "look"},
		Spec: corev1.PodSpec{
			RestartPolicy:   corev1.RestartPolicyNever,
			SecurityContext: restrictedPod(),
			Volumes: []corev1.Volume{{Name: "claim", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: checkpoint.ClaimName},
			}}},
			Containers: []corev1.Container{{
				Name: "look", Image: worker, ImagePullPolicy: corev1.PullIfNotPresent,
				Command:         []string{"/bin/sh", "-c", "ls /checkpoints" + checkpoint.Path},
				VolumeMounts:    []corev1.VolumeMount{{Name: "claim", MountPath: "/checkpoints"}},
				SecurityContext: restrictedContainer(),
			}},
		},
	}
	require.NoError(t, cluster.Create(t.Context(), pod))
	eventually(t, "the claim was looked at", func(ctx context.Context) (bool, error) {
		err := cluster.Get(ctx, client.ObjectKeyFromObject(pod), pod)
		return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed, err
	})
	assert.Equal(t, corev1.PodSucceeded, pod.Status.Phase)
	assert.Contains(t, log(t.Context(), pod), "manifest.json")
}
