package trainingjob

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// withTensorBoard asks for TensorBoard.
func withTensorBoard(s *mlv1.TrainingJobSpec) { s.Monitoring.TensorboardEnabled = ptr.To(true) }

func TestTheServiceOfTensorBoardComesAndGoesWithTheJob(t *testing.T) {
	job := builders.TrainingJob("bert").Spec(withTensorBoard).Obj()
	names := func(objects []client.Object) (names []string) {
		for _, object := range objects {
			names = append(names, object.GetName())
		}
		return names
	}
	assert.Contains(t, names(plan(see(job, builders.Workers(job).Obj())).apply), "bert-tensorboard")

	ended := builders.TrainingJob("bert").Spec(withTensorBoard).Cleanup(mlv1.CleanupAll).Status(mlv1.TrainingJobStatus{State: mlv1.StateCompleted}).Obj()
	o := see(ended, builders.Workers(ended).Obj())
	o.with(build.TensorBoardService(ended))
	assert.Contains(t, names(plan(o).delete), "bert-tensorboard")
	o.children = nil
	assert.NotContains(t, names(plan(o).delete), "bert-tensorboard")
}

func TestAnImageOfTensorBoardThatCannotBePulledIsNamed(t *testing.T) {
	pod := &corev1.Pod{}
	pod.Name = "bert-training-0"
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{
		Name: "tensorboard", Image: "tensorboard:1",
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "not found"}},
	}}
	bare, err := keepPods.Pods()(pod)
	require.NoError(t, err)
	reason, message := describeObstacle(bare.(*corev1.Pod))
	assert.Equal(t, reasons.ImagePullFailed, reason)
	assert.Equal(t, "pod bert-training-0 cannot pull image tensorboard:1 of container tensorboard: not found; "+
		"correct spec.monitoring.tensorboardImage, or turn off spec.monitoring.tensorboardEnabled", message)
}

func TestThereIsNoServiceWithoutTensorBoard(t *testing.T) {
	for _, object := range Children(builders.TrainingJob("bert").Obj(), build.Settings{}) {
		assert.NotEqual(t, "bert-tensorboard", object.GetName())
	}
}
