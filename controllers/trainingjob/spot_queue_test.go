package trainingjob

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/capacity"
	"github.com/dcnlab/spot-training-operator/internal/queueing"
	"github.com/dcnlab/spot-training-operator/internal/queueing/scheduler"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// queuedOnSpot is a job of two workers with a GPU each in the queue research, on instances of the SpotInstanceVM t4.
func queuedOnSpot() *builders.TrainingJobBuilder {
	return inQueue("bert").GPUs(1).Spec(func(s *mlv1.TrainingJobSpec) { s.Scheduling.Spot = &mlv1.SpotReference{Name: "t4"} })
}

func waitsFor(reason string) queueing.Decision {
	return queueing.Decision{Wait: &scheduler.Wait{Position: 1, Reason: reason, Message: "needs 2 nvidia.com/gpu; none is free"}}
}

// told is a job that has told what it waits for.
func told(b *builders.TrainingJobBuilder, reason string) *mlv1.TrainingJob {
	job := waitingJob(b)
	job.Status = plan(see(job, nil).decided(waitsFor(reason))).status
	return job
}

func TestPodsWithoutPlace(t *testing.T) {
	lacks := reasons.InsufficientCapacity
	for name, test := range map[string]struct {
		job  *mlv1.TrainingJob
		want int
	}{
		"it waits for room":                {told(queuedOnSpot(), lacks), 2},
		"it waits for something else":      {told(queuedOnSpot(), reasons.QuotaReached), 0},
		"nothing was decided yet":          {waitingJob(queuedOnSpot()), 0},
		"it names no SpotInstanceVM":       {told(inQueue("bert").GPUs(1), lacks), 0},
		"it is suspended":                  {told(queuedOnSpot().Suspended(), lacks), 0},
		"it has its place":                 {admittedJob(queuedOnSpot(), "a", "b"), 0},
		"a job without a queue, which has": {builders.TrainingJob("bert").Obj(), 0},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Len(t, PodsWithoutPlace(test.job, build.Settings{}), test.want)
		})
	}
	job := told(queuedOnSpot(), lacks)
	pods := PodsWithoutPlace(job, build.Settings{})
	require.Len(t, pods, 2)
	for _, pod := range pods {
		assert.Equal(t, job.Namespace, pod.Namespace)
		assert.Equal(t, "t4", pod.Labels[spotv1alpha1.LabelSpotInstanceVM])
		assert.Equal(t, "bert", pod.Labels[mlv1.LabelTrainingJob])
		assert.EqualValues(t, 1, capacity.Requests(pod).GPUs)
		assert.Equal(t, builders.Noon, pod.CreationTimestamp.Time)
	}
	assert.NotEqual(t, pods[0].Name, pods[1].Name)

	limited := queuedOnSpot().GPUs(0).Spec(func(s *mlv1.TrainingJobSpec) {
		s.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("6")}}
	})
	assert.EqualValues(t, 6000, capacity.Requests(PodsWithoutPlace(told(limited, lacks), build.Settings{})[0]).MilliCPU, "what is not requested is what is the limit")
}

func TestAQueuedJobSaysThatInstancesAreCreatedForIt(t *testing.T) {
	waits := func(reason string, vm *spotv1alpha1.SpotInstanceVM) string {
		o := see(waitingJob(queuedOnSpot()), nil).after(time.Minute).decided(waitsFor(reason))
		o.spotVM = vm
		return messageOf(plan(o), "Admitted")
	}
	lacks := reasons.InsufficientCapacity
	const place = "position 1 in AIJobQueue research: needs 2 nvidia.com/gpu; none is free"
	assert.Equal(t, place+"; SpotInstanceVM t4 creates instances for workers that fit on no node", waits(lacks, &spotv1alpha1.SpotInstanceVM{}))
	assert.Contains(t, waits(lacks, nil), place+"; there is no SpotInstanceVM t4 in namespace ")
	assert.Equal(t, place, waits(reasons.QuotaReached, &spotv1alpha1.SpotInstanceVM{}))
}
