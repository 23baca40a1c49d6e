package trainingjob

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/metrics"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

func TestWaitsAreCountedOnce(t *testing.T) {
	at := func(after time.Duration) metav1.Time { return metav1.NewTime(builders.Noon.Add(after)) }
	admitted := []metav1.Condition{{Type: reasons.ConditionAdmitted, Status: metav1.ConditionTrue, LastTransitionTime: at(time.Minute)}}
	queued := []metav1.Condition{{Type: reasons.ConditionAdmitted, Status: metav1.ConditionFalse, LastTransitionTime: at(0)}}
	started := mlv1.TrainingJobStatus{Conditions: admitted, StartTime: ptr.To(at(2 * time.Minute))}
	for name, test := range map[string]struct {
		before, after        mlv1.TrainingJobStatus
		queueWait, toRunning int
	}{
		"admitted":         {mlv1.TrainingJobStatus{Conditions: queued}, mlv1.TrainingJobStatus{Conditions: admitted}, 1, 0},
		"still queued":     {mlv1.TrainingJobStatus{}, mlv1.TrainingJobStatus{Conditions: queued}, 0, 0},
		"admitted at once": {mlv1.TrainingJobStatus{}, started, 1, 1},
		"runs":             {mlv1.TrainingJobStatus{Conditions: admitted}, started, 0, 1},
		"runs again":       {started, started, 0, 0},
		"queued again and admitted": {
			mlv1.TrainingJobStatus{Conditions: queued, StartTime: started.StartTime}, started, 0, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			r := Reconciler{Metrics: metrics.NewTrainingJobs(registry, 1)}
			r.observeWaits(builders.TrainingJob("bert").Status(test.before).Obj(), &test.after)
			for metric, count := range map[string]int{
				"trainingjob_queue_wait_seconds": test.queueWait, "trainingjob_time_to_running_seconds": test.toRunning,
			} {
				found, err := testutil.GatherAndCount(registry, metric)
				require.NoError(t, err)
				assert.Equal(t, count, found, metric)
			}
		})
	}
}

// Workers end one after the other: each end by itself would be a write.
func TestCountsWaitForOneAnother(t *testing.T) {
	job := runningJob(t, builders.TrainingJob("bert").Workers(2))
	r := &Reconciler{} // without a client: a write would panic
	for ended, passed := range []time.Duration{time.Second, 4 * time.Second} {
		o := see(job, nil).after(time.Hour + passed)
		d := desired{status: *job.Status.DeepCopy()}
		d.status.Workers.Active -= int32(ended + 1)
		require.NoError(t, r.report(t.Context(), o, &d))
		assert.Equal(t, minorDelay-passed+time.Second, d.again, "from the first one on")
	}
}
