package metrics

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/dcnlab/spot-training-operator/test/builders"
)

func TestCounters(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	m := NewTrainingJobs(registry, 10)
	m.Created("team-a")
	m.Created("team-a")
	m.Completed("team-a")
	m.Failed("team-a", mlv1.ReasonOutOfMemory)
	m.Reconciled("team-a", "bert", 2*time.Millisecond, "")
	m.Reconciled("team-a", "bert", 2*time.Second, "Conflict")

	assert.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP trainingjob_completed_total Training jobs that ended, by result: success or failure.
# TYPE trainingjob_completed_total counter
trainingjob_completed_total{namespace="team-a",result="failure"} 1
trainingjob_completed_total{namespace="team-a",result="success"} 1
# HELP trainingjob_created_total Training jobs taken up.
# TYPE trainingjob_created_total counter
trainingjob_created_total{namespace="team-a"} 2
# HELP trainingjob_failed_total Training jobs that failed for good, by reason.
# TYPE trainingjob_failed_total counter
trainingjob_failed_total{namespace="team-a",reason="OutOfMemory"} 1
# HELP trainingjob_reconciliation_errors_total Reconciliations of training jobs that ended with an error, by its type.
# TYPE trainingjob_reconciliation_errors_total counter
trainingjob_reconciliation_errors_total{error_type="Conflict",namespace="team-a",training_job="bert"} 1
# HELP trainingjob_reconciliation_total Reconciliations of training jobs, by result.
# TYPE trainingjob_reconciliation_total counter
trainingjob_reconciliation_total{namespace="team-a",result="error",training_job="bert"} 1
trainingjob_reconciliation_total{namespace="team-a",result="success",training_job="bert"} 1
# HELP trainingjob_reconciliation_duration_seconds Time that a reconciliation of a training job took.
# TYPE trainingjob_reconciliation_duration_seconds histogram
trainingjob_reconciliation_duration_seconds_bucket{namespace="team-a",training_job="bert",le="0.001"} 0
trainingjob_reconciliation_duration_seconds_bucket{namespace="team-a",training_job="bert",le="0.005"} 1
trainingjob_reconciliation_duration_seconds_bucket{namespace="team-a",training_job="bert",le="0.025"} 1
trainingjob_reconciliation_duration_seconds_bucket{namespace="team-a",training_job="bert",le="0.1"} 1
trainingjob_reconciliation_duration_seconds_bucket{namespace="team-a",training_job="bert",le="0.5"} 1
trainingjob_reconciliation_duration_seconds_bucket{namespace="team-a",training_job="bert",le="2.5"} 2
trainingjob_reconciliation_duration_seconds_bucket{namespace="team-a",training_job="bert",le="+Inf"} 2
trainingjob_reconciliation_duration_seconds_sum{namespace="team-a",training_job="bert"} 2.002
trainingjob_reconciliation_duration_seconds_count{namespace="team-a",training_job="bert"} 2
`)))
}

func TestTheNumberOfSeriesIsBounded(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	m := NewTrainingJobs(registry, 3)
	for i := range 100 {
		m.Reconciled("a", fmt.Sprint("job-", i), time.Millisecond, "")
	}
	count := func() int {
		n, err := testutil.GatherAndCount(registry, "trainingjob_reconciliation_total")
		require.NoError(t, err)
		return n
	}
	assert.Equal(t, 4, count(), "three jobs of their own and one series for all others")
	assert.InDelta(t, 97, testutil.ToFloat64(m.reconciliations.WithLabelValues("a", "", ResultSuccess)), 0)

	m.Forget("a", "job-0")
	assert.Equal(t, 3, count(), "the series of a job that no longer exists are gone")
	m.Reconciled("a", "new", time.Millisecond, "")
	assert.Equal(t, 4, count(), "and its place is free for another")

	m.Forget("a", "job-50")
	assert.Equal(t, 4, count(), "to forget a job without series of its own is nothing")
	m.Forget("a", "new")
	m.Forget("a", "new")
	assert.Equal(t, 3, count())
}

func TestForgettingAJobDropsItsErrorsToo(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	m := NewTrainingJobs(registry, 3)
	m.Reconciled("a", "bert", time.Millisecond, "Conflict")
	m.Reconciled("a", "bert", time.Millisecond, "Other")

	m.Forget("a", "bert")

	left, err := registry.Gather()
	require.NoError(t, err)
	assert.Empty(t, left)
}

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

func TestStatusGauges(t *testing.T) {
	noon := metav1.NewTime(builders.Noon)
	running := builders.TrainingJob("bert").Status(mlv1.TrainingJobStatus{
		State: mlv1.StateRunning, Progress: "45%", CurrentEpoch: 3, StartTime: &noon,
		Metrics:   map[string]float64{"loss": 0.5, "accuracy": 0.9, "f1": 0.1},
		Resources: &mlv1.ResourcesStatus{Workers: 4, GPUs: 16, GPUUtilizationPercent: ptr.To(87.5)},
	}).Obj()
	ended := builders.TrainingJob("gpt").Status(mlv1.TrainingJobStatus{
		State: mlv1.StateCompleted, Progress: "100%", StartTime: &noon, CompletionTime: ptr.To(metav1.NewTime(noon.Add(10 * time.Second))),
		Resources: &mlv1.ResourcesStatus{Workers: 4, GPUs: 16},
	}).Obj()
	collector := NewTrainingJobStatus(lister{jobs: []*mlv1.TrainingJob{running, ended, builders.TrainingJob("new").Obj()}}, 10,
		clocktesting.NewFakePassiveClock(builders.Noon.Add(time.Minute)))

	assert.NoError(t, testutil.CollectAndCompare(collector, strings.NewReader(`
# HELP trainingjob_accuracy Accuracy last reported, 0 to 1.
# TYPE trainingjob_accuracy gauge
trainingjob_accuracy{namespace="default",training_job="bert"} 0.9
# HELP trainingjob_allocated_gpus GPUs that the workers of an unfinished job hold together.
# TYPE trainingjob_allocated_gpus gauge
trainingjob_allocated_gpus{namespace="default",training_job="bert"} 16
# HELP trainingjob_allocated_workers Workers of an unfinished job.
# TYPE trainingjob_allocated_workers gauge
trainingjob_allocated_workers{namespace="default",training_job="bert"} 4
# HELP trainingjob_current_epoch Epoch in progress, from 1.
# TYPE trainingjob_current_epoch gauge
trainingjob_current_epoch{namespace="default",training_job="bert"} 3
# HELP trainingjob_duration_seconds Time since all workers first ran, until the end of the job.
# TYPE trainingjob_duration_seconds gauge
trainingjob_duration_seconds{namespace="default",state="Completed",training_job="gpt"} 10
trainingjob_duration_seconds{namespace="default",state="Running",training_job="bert"} 60
# HELP trainingjob_gpu_utilization_percent GPU utilization last reported by replica 0, 0 to 100.
# TYPE trainingjob_gpu_utilization_percent gauge
trainingjob_gpu_utilization_percent{namespace="default",training_job="bert"} 87.5
# HELP trainingjob_loss Training loss last reported.
# TYPE trainingjob_loss gauge
trainingjob_loss{namespace="default",training_job="bert"} 0.5
# HELP trainingjob_progress_percent Share of the training that is done, 0 to 100.
# TYPE trainingjob_progress_percent gauge
trainingjob_progress_percent{namespace="default",training_job="bert"} 45
trainingjob_progress_percent{namespace="default",training_job="gpt"} 100
# HELP trainingjob_total Training jobs that exist, by state.
# TYPE trainingjob_total gauge
trainingjob_total{namespace="default",state="Completed"} 1
trainingjob_total{namespace="default",state="Pending"} 1
trainingjob_total{namespace="default",state="Running"} 1
`)))
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

func TestMetricNamesFollowPrometheusConventions(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := NewTrainingJobs(registry, 1)
	m.Created("a")
	m.Failed("a", "b")
	m.Reconciled("a", "b", 0, "c")
	problems, err := testutil.GatherAndLint(registry)
	require.NoError(t, err)
	assert.Empty(t, problems)
}
