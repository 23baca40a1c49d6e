package metrics

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// lister lists jobs in the order in which it has them.
type lister struct {
	client.Reader

	jobs []*mlv1.TrainingJob
	err  error
}

func (l lister) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	for _, job := range l.jobs {
		list.(*mlv1.TrainingJobList).Items = append(list.(*mlv1.TrainingJobList).Items, *job)
	}
	return l.err
}

func TestFiguresOfJobs(t *testing.T) {
	noon := metav1.NewTime(builders.Noon)
	at := func(after time.Duration) metav1.Time { return metav1.NewTime(builders.Noon.Add(after)) }
	condition := func(kind string, status metav1.ConditionStatus, since time.Duration, reason string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason, LastTransitionTime: at(since)}
	}
	running := builders.TrainingJob("bert").Spec(func(s *mlv1.TrainingJobSpec) {
		s.Checkpoint = &mlv1.Checkpoint{Interval: &metav1.Duration{Duration: 10 * time.Minute}, Frequency: 2}
	}).Status(mlv1.TrainingJobStatus{
		State: mlv1.StateRunning, Progress: "45%", CurrentEpoch: 3, StartTime: &noon,
		Metrics: map[string]float64{"loss": 0.5, "accuracy": 0.9, "f1": 0.1}, MetricsTime: ptr.To(at(30 * time.Second)),
		Resources:    &mlv1.ResourcesStatus{Workers: 4, GPUs: 16, GPUUtilizationPercent: ptr.To(87.5)},
		Checkpoint:   &mlv1.CheckpointStatus{Path: "x", Epoch: 2, SizeBytes: 4096, Time: ptr.To(at(20 * time.Second))},
		RestartCount: 3, DisruptionCount: 1,
		Conditions: []metav1.Condition{
			condition(reasons.ConditionCheckpointReady, metav1.ConditionTrue, 0, reasons.StorageReady),
			condition(reasons.ConditionRunning, metav1.ConditionTrue, 10*time.Second, reasons.WorkersRunning),
		},
	}).Obj()
	ended := builders.TrainingJob("gpt").Status(mlv1.TrainingJobStatus{
		State: mlv1.StateCompleted, Progress: "100%", StartTime: &noon, CompletionTime: ptr.To(at(10 * time.Second)),
		Resources:  &mlv1.ResourcesStatus{Workers: 4, GPUs: 16},
		Checkpoint: &mlv1.CheckpointStatus{Path: "y", Epoch: 9, Time: ptr.To(at(9 * time.Second))},
		Conditions: []metav1.Condition{condition(reasons.ConditionCheckpointReady, metav1.ConditionTrue, 0, reasons.StorageReady)},
	}).Obj()
	restarting := builders.TrainingJob("rnn").Status(mlv1.TrainingJobStatus{
		State: mlv1.StateRestarting, Reason: reasons.Unschedulable, StartTime: &noon, RestartCount: 1,
		Conditions: []metav1.Condition{
			condition(reasons.ConditionRunning, metav1.ConditionFalse, 40*time.Second, reasons.ProgramFailed),
			condition(reasons.ConditionCheckpointReady, metav1.ConditionFalse, 0, reasons.ClaimNotFound),
		},
	}).Obj()
	fresh := builders.TrainingJob("vit").Status(mlv1.TrainingJobStatus{State: mlv1.StateRunning, StartTime: ptr.To(at(50 * time.Second)),
		MetricsTime: ptr.To(at(5 * time.Second)), // of an earlier attempt
		Conditions:  []metav1.Condition{condition(reasons.ConditionRunning, metav1.ConditionTrue, 50*time.Second, reasons.WorkersRunning)},
	}).Obj()
	collector := NewTrainingJobStatus(lister{jobs: []*mlv1.TrainingJob{running, ended, restarting, fresh}}, 10,
		clocktesting.NewFakePassiveClock(builders.Noon.Add(time.Minute)))

	assert.Equal(t, map[string]float64{
		`accuracy{bert}`: 0.9, `loss{bert}`: 0.5, `gpu_utilization_percent{bert}`: 87.5,
		`allocated_gpus{bert}`: 16, `allocated_workers{bert}`: 4,
		`current_epoch{bert}`: 3, `progress_percent{bert}`: 45, `progress_percent{gpt}`: 100,
		`duration_seconds{Running,bert}`: 60, `duration_seconds{Completed,gpt}`: 10, `duration_seconds{Restarting,rnn}`: 60,
		`duration_seconds{Running,vit}`: 10,
		`state{Running,bert}`:           1, `state{Completed,gpt}`: 1, `state{Restarting,rnn}`: 1, `state{Running,vit}`: 1,
		`running_seconds{bert}`: 50, `running_seconds{vit}`: 10,
		`waiting_seconds{Unschedulable,Restarting,rnn}`: 20,
		`restarts_total{bert}`:                          3, `restarts_total{gpt}`: 0, `restarts_total{rnn}`: 1, `restarts_total{vit}`: 0,
		`disruptions_total{bert}`: 1, `disruptions_total{gpt}`: 0, `disruptions_total{rnn}`: 0, `disruptions_total{vit}`: 0,
		`last_progress_timestamp_seconds{bert}`: seconds(30), `last_progress_timestamp_seconds{vit}`: seconds(50),
		`completion_timestamp_seconds{gpt}`:  seconds(10),
		`checkpoint_timestamp_seconds{bert}`: seconds(20), `checkpoint_timestamp_seconds{gpt}`: seconds(9),
		`checkpoint_age_seconds{bert}`: 40, `checkpoint_epoch{bert}`: 2, `checkpoint_epoch{gpt}`: 9,
		`checkpoint_size_bytes{bert}`: 4096, `checkpoint_interval_seconds{bert}`: 600, `checkpoint_frequency_epochs{bert}`: 2,
		`checkpoint_ready{bert}`: 1, `checkpoint_ready{rnn}`: 0,
		`total{Completed}`: 1, `total{Restarting}`: 1, `total{Running}`: 2, `series_omitted{}`: 0,
	}, samples(t, collector))
}

// seconds after noon, since 1970.
func seconds(after int64) float64 { return float64(builders.Noon.Unix() + after) }

// samples are the values by their names without the common beginning, and their labels' values without the namespace.
func samples(t *testing.T, collector prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(collector))
	families, err := registry.Gather()
	require.NoError(t, err)
	found := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, label := range metric.GetLabel() {
				if label.GetName() != "namespace" {
					labels = append(labels, label.GetValue())
				}
			}
			name := strings.TrimPrefix(family.GetName(), "trainingjob_")
			found[name+"{"+strings.Join(labels, ",")+"}"] = metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
		}
	}
	return found
}

func TestWaitingStartsOverWhenAJobIsResumed(t *testing.T) {
	job := builders.TrainingJob("bert").Status(mlv1.TrainingJobStatus{
		State: mlv1.StateInitializing, Reason: reasons.WorkersStarting,
		Conditions: []metav1.Condition{{
			Type: reasons.ConditionSuspended, Status: metav1.ConditionFalse, Reason: reasons.Resumed,
			LastTransitionTime: metav1.NewTime(builders.Noon.Add(time.Hour)),
		}},
	}).Obj()
	now := clocktesting.NewFakePassiveClock(builders.Noon.Add(time.Hour + time.Minute))
	assert.InDelta(t, 60, samples(t, NewTrainingJobStatus(lister{jobs: []*mlv1.TrainingJob{job}}, 1, now))["waiting_seconds{WorkersStarting,Initializing,bert}"], 0)
}

func TestFinishedJobsLeaveTheirFiguresToUnfinishedOnes(t *testing.T) {
	job := func(name string, ended *metav1.Time) *mlv1.TrainingJob {
		return builders.TrainingJob(name).Status(mlv1.TrainingJobStatus{State: mlv1.StateRunning, CompletionTime: ended}).Obj()
	}
	early, late := metav1.NewTime(builders.Noon.Add(time.Minute)), metav1.NewTime(builders.Noon.Add(time.Hour))
	jobs := []*mlv1.TrainingJob{job("a", &early), job("b", &late), job("c", nil)}

	found := samples(t, NewTrainingJobStatus(lister{jobs: jobs}, 2, clocktesting.NewFakePassiveClock(builders.Noon)))

	assert.Contains(t, found, "state{Running,c}", "it has not ended")
	assert.Contains(t, found, "state{Running,b}", "it ended last")
	assert.NotContains(t, found, "state{Running,a}")
	assert.InDelta(t, 1, found["series_omitted{}"], 0)
}

func TestTheSameJobsKeepTheirGaugesWhenThereAreTooMany(t *testing.T) {
	job := func(name string) *mlv1.TrainingJob {
		return builders.TrainingJob(name).Status(mlv1.TrainingJobStatus{State: mlv1.StateRunning, CurrentEpoch: 1}).Obj()
	}
	a, b, c := job("a"), job("b"), job("c")
	for _, order := range [][]*mlv1.TrainingJob{{a, b, c}, {c, b, a}, {b, c, a}} { // a cache lists in any order
		collector := NewTrainingJobStatus(lister{jobs: order}, 2, clocktesting.NewFakePassiveClock(builders.Noon))
		assert.NoError(t, testutil.CollectAndCompare(collector, strings.NewReader(`
# HELP trainingjob_current_epoch Epoch in progress, from 1.
# TYPE trainingjob_current_epoch gauge
trainingjob_current_epoch{namespace="default",training_job="a"} 1
trainingjob_current_epoch{namespace="default",training_job="b"} 1
# HELP trainingjob_total Training jobs that exist, by state.
# TYPE trainingjob_total gauge
trainingjob_total{namespace="default",state="Running"} 3
`), "trainingjob_current_epoch", "trainingjob_total"))
	}
}

func TestAScrapeFailsWhenTheJobsCannotBeListed(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(NewTrainingJobStatus(lister{err: errors.New("no cache")}, 1, clocktesting.NewFakePassiveClock(builders.Noon)))
	_, err := registry.Gather()
	assert.ErrorContains(t, err, "no cache")
}
