package metrics

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
)

// NewTrainingJobStatus returns a collector of the figures in the status of all training jobs, read from the cache; counters go on when the
// manager starts again. maxJobs jobs have figures of their own: unfinished jobs before finished ones, of the unfinished the oldest, of the
// finished those that ended last. trainingjob_total counts all.
func NewTrainingJobStatus(jobs client.Reader, maxJobs int, clock clock.PassiveClock) prometheus.Collector {
	s := &scraped{}
	total := s.gauge("trainingjob_total", "Training jobs that exist, by state.", "namespace", "state")
	omitted := s.gauge("trainingjob_series_omitted", "Training jobs without figures of their own, because there are more than --metrics-max-jobs.")
	figures := make([]figure, len(jobFigures))
	for i, of := range jobFigures {
		figures[i] = s.add(of.kind, of.name, of.help, append([]string{"namespace", "training_job"}, of.labels...))
	}
	s.collect = func(ctx context.Context, send sender) error {
		var list mlv1.TrainingJobList
		if err := jobs.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
			return err
		}
		type group struct{ namespace, state string }
		counts := map[group]int{}
		all := make([]*mlv1.TrainingJob, len(list.Items)) // the structs are large to sort
		for i := range list.Items {
			all[i] = &list.Items[i]
			counts[group{all[i].Namespace, string(all[i].Status.State)}]++
		}
		for of, count := range counts {
			send(total, float64(count), of.namespace, of.state)
		}
		shown := min(len(all), max(maxJobs, 0))
		send(omitted, float64(len(all)-shown))
		slices.SortFunc(all, byImportance) // the cache has no order of its own
		now := clock.Now()
		for _, one := range all[:shown] {
			j := job{one, now}
			for i, of := range jobFigures {
				if value, ok := of.read(j); ok {
					send(figures[i], value, j.labels(of)...)
				}
			}
		}
		return nil
	}
	return s
}

// byImportance has the jobs first that are to have figures of their own.
func byImportance(a, b *mlv1.TrainingJob) int {
	ended := func(job *mlv1.TrainingJob) int64 {
		if job.Status.CompletionTime == nil {
			return math.MaxInt64 // after all others
		}
		return job.Status.CompletionTime.UnixNano()
	}
	return cmp.Or(cmp.Compare(ended(b), ended(a)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// jobFigure is a metric of single jobs.
type jobFigure struct {
	kind       prometheus.ValueType
	name, help string
	// labels beside namespace and training_job; labels of job has their values.
	labels []string
	// read returns false when the job has no value.
	read func(job) (float64, bool)
}

const gauge, counter = prometheus.GaugeValue, prometheus.CounterValue

var jobFigures = []jobFigure{
	{gauge, "trainingjob_state", "1 for the state that the job is in.", []string{"state"},
		func(j job) (float64, bool) { return 1, j.Status.State != "" }},
	{gauge, "trainingjob_progress_percent", "Share of the training that is done, 0 to 100.", nil,
		func(j job) (float64, bool) { return number(strings.TrimSuffix(j.Status.Progress, "%")) }},
	{gauge, "trainingjob_current_epoch", "Epoch in progress, from 1.", nil,
		func(j job) (float64, bool) { return above0(j.Status.CurrentEpoch) }},
	{gauge, "trainingjob_duration_seconds", "Time since all workers first ran, until the end of the job.", []string{"state"}, job.duration},
	{gauge, "trainingjob_running_seconds", "Time since all workers of a running job last began to run.", nil,
		func(j job) (float64, bool) { return j.since(j.runsSince()) }},
	{gauge, "trainingjob_waiting_seconds", "Time since which an unfinished job waits for its workers to run, by what it waits for.",
		[]string{"state", "reason"}, func(j job) (float64, bool) { return j.since(j.waitsSince()) }},
	{gauge, "trainingjob_last_progress_timestamp_seconds",
		"When the figures of a running job last changed, or it began to run if that was later, in seconds since 1970.", nil, job.lastProgress},
	{gauge, "trainingjob_completion_timestamp_seconds", "When the job ended, in seconds since 1970.", nil,
		func(j job) (float64, bool) { return timestamp(j.Status.CompletionTime) }},
	{gauge, "trainingjob_loss", "Training loss last reported.", nil, metric("loss")},
	{gauge, "trainingjob_accuracy", "Accuracy last reported, 0 to 1.", nil, metric("accuracy")},
	{counter, "trainingjob_restarts_total", "Restarts of the whole job, for whatever reason.", nil,
		func(j job) (float64, bool) { return float64(j.Status.RestartCount), true }},
	{counter, "trainingjob_disruptions_total", "Restarts that were due to preemption, eviction, the loss of a node or a change of scale.", nil,
		func(j job) (float64, bool) { return float64(j.Status.DisruptionCount), true }},
	{counter, "trainingjob_cost_total", "What a job has cost so far by the prices of its nodes, as of its status.", []string{"currency"},
		func(j job) (float64, bool) { return number(j.cost().Total) }},
	{gauge, "trainingjob_cost_per_hour", "What the running workers of a job cost per hour.", []string{"currency"},
		func(j job) (float64, bool) { return number(j.cost().PerHour) }},
	{gauge, "trainingjob_allocated_gpus", "GPUs that the workers of an unfinished job hold together.", nil,
		func(j job) (float64, bool) { return float64(j.held().GPUs), j.holds() }},
	{gauge, "trainingjob_allocated_workers", "Workers of an unfinished job.", nil,
		func(j job) (float64, bool) { return float64(j.held().Workers), j.holds() }},
	{gauge, "trainingjob_gpu_utilization_percent", "GPU utilization last reported by replica 0, 0 to 100.", nil,
		func(j job) (float64, bool) {
			return ptr.Deref(j.held().GPUUtilizationPercent, 0), j.holds() && j.held().GPUUtilizationPercent != nil
		}},
	{gauge, "trainingjob_checkpoint_timestamp_seconds", "When the newest checkpoint was made, in seconds since 1970.", nil,
		func(j job) (float64, bool) { return timestamp(j.newest().Time) }},
	{gauge, "trainingjob_checkpoint_age_seconds", "Age of the newest checkpoint of an unfinished job.", nil,
		func(j job) (float64, bool) { return j.since(j.newest().Time) }},
	{gauge, "trainingjob_checkpoint_epoch", "Epoch of the newest checkpoint, from 1.", nil,
		func(j job) (float64, bool) { return above0(j.newest().Epoch) }},
	{gauge, "trainingjob_checkpoint_size_bytes", "Size of the newest checkpoint.", nil,
		func(j job) (float64, bool) { return above0(j.newest().SizeBytes) }},
	{gauge, "trainingjob_checkpoint_interval_seconds", "Time between two checkpoints of an unfinished job, where its spec says one.", nil,
		func(j job) (float64, bool) {
			return ptr.Deref(j.saving().Interval, metav1.Duration{}).Seconds(), j.saves() && j.saving().Interval != nil
		}},
	{gauge, "trainingjob_checkpoint_frequency_epochs", "Epochs between two checkpoints of an unfinished job.", nil,
		func(j job) (float64, bool) { return float64(max(j.saving().Frequency, 1)), j.saves() }},
	{gauge, "trainingjob_checkpoint_ready", "1 when the checkpoint storage of an unfinished job can be used, else 0.", nil, job.storageReady},
}

// job is a TrainingJob as of now. The methods return empty values for the parts of its spec and status that are not set.
type job struct {
	*mlv1.TrainingJob
	now time.Time
}

func (j job) cost() mlv1.CostStatus { return ptr.Deref(j.Status.Cost, mlv1.CostStatus{}) }

func (j job) newest() mlv1.CheckpointStatus {
	return ptr.Deref(j.Status.Checkpoint, mlv1.CheckpointStatus{})
}

func (j job) held() mlv1.ResourcesStatus {
	return ptr.Deref(j.Status.Resources, mlv1.ResourcesStatus{})
}

func (j job) holds() bool { return j.Status.Resources != nil && j.Status.CompletionTime == nil }

func (j job) saving() mlv1.Checkpoint { return ptr.Deref(j.Spec.Checkpoint, mlv1.Checkpoint{}) }

func (j job) saves() bool {
	return j.Spec.Checkpoint != nil && ptr.Deref(j.saving().Enabled, true) && j.Status.CompletionTime == nil
}

// labels are the values of a figure's labels.
func (j job) labels(of jobFigure) []string {
	values := []string{j.Namespace, j.Name}
	for _, label := range of.labels {
		switch label {
		case "state":
			values = append(values, string(j.Status.State))
		case "reason":
			values = append(values, j.Status.Reason)
		case "currency":
			values = append(values, j.cost().Currency)
		}
	}
	return values
}

// since is how long something lasts in a job that has not ended; clocks of two machines may differ.
func (j job) since(at *metav1.Time) (float64, bool) {
	if at == nil || j.Status.CompletionTime != nil {
		return 0, false
	}
	return max(j.now.Sub(at.Time), 0).Seconds(), true
}

func (j job) duration() (float64, bool) {
	if j.Status.StartTime == nil {
		return 0, false
	}
	end := ptr.Deref(j.Status.CompletionTime, metav1.NewTime(j.now))
	return end.Sub(j.Status.StartTime.Time).Seconds(), true
}

func (j job) runsSince() *metav1.Time {
	running := meta.FindStatusCondition(j.Status.Conditions, reasons.ConditionRunning)
	if running == nil || j.Status.State != mlv1.StateRunning {
		return nil
	}
	return &running.LastTransitionTime
}

// lastProgress is only known of jobs whose figures are read.
func (j job) lastProgress() (float64, bool) {
	if j.Status.State != mlv1.StateRunning || !ptr.Deref(j.Spec.Monitoring.Enabled, true) {
		return 0, false
	}
	last := j.Status.MetricsTime
	if began := j.runsSince(); last.Before(began) {
		last = began
	}
	return timestamp(last)
}

// waitsSince is the time of the creation, when the workers last ran, or of the resumption; nil when it does not wait.
func (j job) waitsSince() *metav1.Time {
	if !slices.Contains([]mlv1.State{mlv1.StatePending, mlv1.StateInitializing, mlv1.StateRestarting}, j.Status.State) {
		return nil
	}
	since := j.CreationTimestamp
	for _, condition := range j.Status.Conditions {
		ran := condition.Type == reasons.ConditionRunning && condition.Status == metav1.ConditionFalse && j.Status.StartTime != nil
		resumed := condition.Type == reasons.ConditionSuspended && condition.Reason == reasons.Resumed
		if at := condition.LastTransitionTime; (ran || resumed) && at.After(since.Time) {
			since = at
		}
	}
	return &since
}

func (j job) storageReady() (float64, bool) {
	ready := meta.FindStatusCondition(j.Status.Conditions, reasons.ConditionCheckpointReady)
	if ready == nil || j.Status.CompletionTime != nil {
		return 0, false
	}
	if ready.Status == metav1.ConditionTrue {
		return 1, true
	}
	return 0, true
}

// metric reads one of the metrics that the training reports.
func metric(name string) func(job) (float64, bool) {
	return func(j job) (float64, bool) {
		value, ok := j.Status.Metrics[name]
		return value, ok
	}
}

// number is a number that a status has as text.
func number(text string) (float64, bool) {
	value, err := strconv.ParseFloat(text, 64)
	return value, err == nil
}

func above0[N int32 | int64](value N) (float64, bool) { return float64(value), value > 0 }

func timestamp(at *metav1.Time) (float64, bool) {
	if at.IsZero() {
		return 0, false
	}
	return float64(at.UnixMilli()) / 1000, true
}
