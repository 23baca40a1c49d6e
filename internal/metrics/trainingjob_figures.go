package metrics

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
)

// figure is a metric of one job, read from its status.
type figure struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	// read returns the value, and those of the labels after namespace and training_job; false when there is none.
	read func(job *mlv1.TrainingJob, now time.Time) (value float64, labels []string, ok bool)
}

// perJob are the metrics of every job.
type perJob []figure

type reading = func(*mlv1.TrainingJob, time.Time) (float64, []string, bool)

func gauge(name, help string, read reading, labels ...string) figure {
	return figure{desc: prometheus.NewDesc(name, help, append([]string{"namespace", "training_job"}, labels...), nil), kind: prometheus.GaugeValue, read: read}
}

// simple is a reading without labels of its own, and without regard to the time.
func simple(read func(*mlv1.TrainingJob) (float64, bool)) reading {
	return func(job *mlv1.TrainingJob, _ time.Time) (float64, []string, bool) {
		value, ok := read(job)
		return value, nil, ok
	}
}

func newPerJob() perJob {
	figures := perJob{
		gauge("trainingjob_state", "1 for the state that the job is in.", stateOf, "state"),
		gauge("trainingjob_progress_percent", "Share of the training that is done, 0 to 100.", simple(progressOf)),
		gauge("trainingjob_current_epoch", "Epoch in progress, from 1.", simple(func(job *mlv1.TrainingJob) (float64, bool) {
			return float64(job.Status.CurrentEpoch), job.Status.CurrentEpoch > 0
		})),
		gauge("trainingjob_duration_seconds", "Time since all workers first ran, until the end of the job.", durationOf, "state"),
		gauge("trainingjob_running_seconds", "Time since all workers of a running job last began to run.", runningOf),
		gauge("trainingjob_waiting_seconds", "Time since which an unfinished job waits for its workers to run, by what it waits for.", waitingOf, "state", "reason"),
		gauge("trainingjob_last_progress_timestamp_seconds",
			"When the figures of a running job last changed, or it began to run if that was later, in seconds since 1970.", simple(lastProgressOf)),
		gauge("trainingjob_completion_timestamp_seconds", "When the job ended, in seconds since 1970.", simple(func(job *mlv1.TrainingJob) (float64, bool) {
			return timestamp(job.Status.CompletionTime)
		})),
		gauge("trainingjob_allocated_gpus", "GPUs that the workers of an unfinished job hold together.", simple(allocated(func(r *mlv1.ResourcesStatus) float64 {
			return float64(r.GPUs)
		}))),
		gauge("trainingjob_allocated_workers", "Workers of an unfinished job.", simple(allocated(func(r *mlv1.ResourcesStatus) float64 {
			return float64(r.Workers)
		}))),
		gauge("trainingjob_gpu_utilization_percent", "GPU utilization last reported by replica 0, 0 to 100.", simple(utilizationOf)),
		gauge("trainingjob_loss", "Training loss last reported.", simple(metricOf("loss"))),
		gauge("trainingjob_accuracy", "Accuracy last reported, 0 to 1.", simple(metricOf("accuracy"))),
		{
			desc: prometheus.NewDesc("trainingjob_restarts_total", "Restarts of the whole job, for whatever reason.", []string{"namespace", "training_job"}, nil),
			kind: prometheus.CounterValue,
			read: simple(func(job *mlv1.TrainingJob) (float64, bool) { return float64(job.Status.RestartCount), true }),
		},
		{
			desc: prometheus.NewDesc("trainingjob_disruptions_total",
				"Restarts that were due to preemption, eviction, the loss of a node or a change of scale.", []string{"namespace", "training_job"}, nil),
			kind: prometheus.CounterValue,
			read: simple(func(job *mlv1.TrainingJob) (float64, bool) { return float64(job.Status.DisruptionCount), true }),
		},
	}
	return slices.Concat(figures, checkpointFigures(), costFigures())
}

func checkpointFigures() perJob {
	return perJob{
		gauge("trainingjob_checkpoint_timestamp_seconds", "When the newest checkpoint was made, in seconds since 1970.",
			simple(ofCheckpoint(func(c *mlv1.CheckpointStatus) (float64, bool) { return timestamp(c.Time) }))),
		gauge("trainingjob_checkpoint_age_seconds", "Age of the newest checkpoint of an unfinished job.", checkpointAgeOf),
		gauge("trainingjob_checkpoint_epoch", "Epoch of the newest checkpoint, from 1.",
			simple(ofCheckpoint(func(c *mlv1.CheckpointStatus) (float64, bool) { return float64(c.Epoch), c.Epoch > 0 }))),
		gauge("trainingjob_checkpoint_size_bytes", "Size of the newest checkpoint.",
			simple(ofCheckpoint(func(c *mlv1.CheckpointStatus) (float64, bool) { return float64(c.SizeBytes), c.SizeBytes > 0 }))),
		gauge("trainingjob_checkpoint_interval_seconds", "Time between two checkpoints of an unfinished job, where its spec says one.", simple(intervalOf)),
		gauge("trainingjob_checkpoint_frequency_epochs", "Epochs between two checkpoints of an unfinished job.", simple(frequencyOf)),
		gauge("trainingjob_checkpoint_ready", "1 when the checkpoint storage of an unfinished job can be used, else 0.", simple(readinessOf)),
	}
}

func stateOf(job *mlv1.TrainingJob, _ time.Time) (float64, []string, bool) {
	return 1, []string{string(job.Status.State)}, job.Status.State != ""
}

func progressOf(job *mlv1.TrainingJob) (float64, bool) {
	percent, err := strconv.ParseFloat(strings.TrimSuffix(job.Status.Progress, "%"), 64)
	return percent, err == nil
}

func durationOf(job *mlv1.TrainingJob, now time.Time) (float64, []string, bool) {
	start, end := job.Status.StartTime, job.Status.CompletionTime
	if start == nil {
		return 0, nil, false
	}
	if end != nil {
		now = end.Time
	}
	return now.Sub(start.Time).Seconds(), []string{string(job.Status.State)}, true
}

func runningOf(job *mlv1.TrainingJob, now time.Time) (float64, []string, bool) {
	running := meta.FindStatusCondition(job.Status.Conditions, reasons.ConditionRunning)
	if job.Status.State != mlv1.StateRunning || running == nil {
		return 0, nil, false
	}
	return max(now.Sub(running.LastTransitionTime.Time), 0).Seconds(), nil, true
}

// waitingOf counts from the creation, from the last time that the workers ran, or from the resumption.
func waitingOf(job *mlv1.TrainingJob, now time.Time) (float64, []string, bool) {
	switch job.Status.State {
	case mlv1.StatePending, mlv1.StateInitializing, mlv1.StateRestarting:
	default:
		return 0, nil, false
	}
	since := job.CreationTimestamp.Time
	for _, condition := range job.Status.Conditions {
		ran := condition.Type == reasons.ConditionRunning && condition.Status == metav1.ConditionFalse && job.Status.StartTime != nil
		resumed := condition.Type == reasons.ConditionSuspended && condition.Reason == reasons.Resumed
		if at := condition.LastTransitionTime.Time; (ran || resumed) && at.After(since) {
			since = at
		}
	}
	return max(now.Sub(since), 0).Seconds(), []string{string(job.Status.State), job.Status.Reason}, true
}

// lastProgressOf is only of jobs whose figures are read.
func lastProgressOf(job *mlv1.TrainingJob) (float64, bool) {
	if job.Status.State != mlv1.StateRunning || !ptr.Deref(job.Spec.Monitoring.Enabled, true) {
		return 0, false
	}
	last := job.Status.MetricsTime
	if running := meta.FindStatusCondition(job.Status.Conditions, reasons.ConditionRunning); running != nil && last.Before(&running.LastTransitionTime) {
		last = &running.LastTransitionTime
	}
	return timestamp(last)
}

func allocated(of func(*mlv1.ResourcesStatus) float64) func(*mlv1.TrainingJob) (float64, bool) {
	return func(job *mlv1.TrainingJob) (float64, bool) {
		if !holds(job) {
			return 0, false
		}
		return of(job.Status.Resources), true
	}
}

func utilizationOf(job *mlv1.TrainingJob) (float64, bool) {
	if !holds(job) || job.Status.Resources.GPUUtilizationPercent == nil {
		return 0, false
	}
	return *job.Status.Resources.GPUUtilizationPercent, true
}

// holds says whether a job has resources.
func holds(job *mlv1.TrainingJob) bool { return job.Status.Resources != nil && unfinished(job) }

func unfinished(job *mlv1.TrainingJob) bool { return job.Status.CompletionTime == nil }

func metricOf(name string) func(*mlv1.TrainingJob) (float64, bool) {
	return func(job *mlv1.TrainingJob) (float64, bool) {
		value, ok := job.Status.Metrics[name]
		return value, ok
	}
}

func ofCheckpoint(read func(*mlv1.CheckpointStatus) (float64, bool)) func(*mlv1.TrainingJob) (float64, bool) {
	return func(job *mlv1.TrainingJob) (float64, bool) {
		if job.Status.Checkpoint == nil {
			return 0, false
		}
		return read(job.Status.Checkpoint)
	}
}

func checkpointAgeOf(job *mlv1.TrainingJob, now time.Time) (float64, []string, bool) {
	if job.Status.Checkpoint == nil || job.Status.Checkpoint.Time == nil || !unfinished(job) {
		return 0, nil, false
	}
	return max(now.Sub(job.Status.Checkpoint.Time.Time), 0).Seconds(), nil, true
}

func intervalOf(job *mlv1.TrainingJob) (float64, bool) {
	if !savesCheckpoints(job) || job.Spec.Checkpoint.Interval == nil {
		return 0, false
	}
	return job.Spec.Checkpoint.Interval.Seconds(), true
}

func frequencyOf(job *mlv1.TrainingJob) (float64, bool) {
	if !savesCheckpoints(job) {
		return 0, false
	}
	return float64(max(job.Spec.Checkpoint.Frequency, 1)), true
}

func savesCheckpoints(job *mlv1.TrainingJob) bool {
	return job.Spec.Checkpoint != nil && ptr.Deref(job.Spec.Checkpoint.Enabled, true) && unfinished(job)
}

func readinessOf(job *mlv1.TrainingJob) (float64, bool) {
	condition := meta.FindStatusCondition(job.Status.Conditions, reasons.ConditionCheckpointReady)
	if condition == nil || !unfinished(job) {
		return 0, false
	}
	if condition.Status == metav1.ConditionTrue {
		return 1, true
	}
	return 0, true
}

func timestamp(at *metav1.Time) (float64, bool) {
	if at.IsZero() {
		return 0, false
	}
	return float64(at.UnixMilli()) / 1000, true
}
