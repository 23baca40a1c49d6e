package queuestatus

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/queueing"
	"github.com/dcnlab/spot-training-operator/internal/queueing/scheduler"
)

var noon = time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)

func queue(edit func(*aiplatformv1alpha1.AIJobQueue)) *aiplatformv1alpha1.AIJobQueue {
	q := &aiplatformv1alpha1.AIJobQueue{ObjectMeta: metav1.ObjectMeta{Name: "q", Generation: 3}}
	edit(q)
	return q
}

func TestPlanTellsWhatTheJobsDo(t *testing.T) {
	before := queue(func(q *aiplatformv1alpha1.AIJobQueue) {
		q.Status.Workers = &aiplatformv1alpha1.WorkerPoolStatus{Replicas: 2}
		q.Status.OldestQueuedTime = ptr.To(metav1.NewTime(noon))
	})

	got := planQueue(observedQueue{queue: before, now: noon, figures: queueing.QueueFigures{
		Depth: 2, Oldest: noon.Add(-time.Minute), Running: 3, Usage: scheduler.Resources{GPUs: 4, MilliCPU: 1500, Memory: 2 << 30},
	}})

	assert.EqualValues(t, 3, got.ObservedGeneration)
	assert.EqualValues(t, 2, got.Depth)
	assert.EqualValues(t, 3, got.Running)
	assert.Equal(t, noon.Add(-time.Minute), got.OldestQueuedTime.UTC())
	assert.EqualValues(t, 4, got.Usage.GPUs)
	assert.True(t, got.Usage.CPU.Equal(resource.MustParse("1500m")))
	assert.True(t, got.Usage.Memory.Equal(resource.MustParse("2Gi")))
	assert.EqualValues(t, 2, got.Workers.Replicas, "what others write stays")

	idle := planQueue(observedQueue{queue: before, now: noon})
	assert.Nil(t, idle.OldestQueuedTime)
	assert.Nil(t, idle.Usage.CPU)
}

func TestReadiness(t *testing.T) {
	tests := map[string]struct {
		edit    func(*aiplatformv1alpha1.AIJobQueue)
		missing bool
		want    metav1.ConditionStatus
		reason  string
		message string
	}{
		"a queue that admits jobs": {func(*aiplatformv1alpha1.AIJobQueue) {}, false, metav1.ConditionTrue, "Ready", "admits jobs"},
		"a queue that is suspended": {func(q *aiplatformv1alpha1.AIJobQueue) { q.Spec.Suspend = ptr.To(true) }, false,
			metav1.ConditionFalse, "QueueSuspended", "spec.suspend is true"},
		"a priority class that does not exist": {func(q *aiplatformv1alpha1.AIJobQueue) { q.Spec.PriorityClass = "high" }, true,
			metav1.ConditionTrue, "PriorityClassNotFound", "there is no PriorityClass high"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := planQueue(observedQueue{queue: queue(test.edit), classMissing: test.missing, now: noon})
			require.Len(t, got.Conditions, 1)
			is := got.Conditions[0]
			assert.Equal(t, "Ready", is.Type)
			assert.Equal(t, test.want, is.Status)
			assert.Equal(t, test.reason, is.Reason)
			assert.Contains(t, is.Message, test.message)
			assert.EqualValues(t, 3, is.ObservedGeneration)
		})
	}
}
