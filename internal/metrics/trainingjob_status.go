package metrics

import (
	"cmp"
	"context"
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
	figures := newJobFigures(s)
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
		for _, job := range all[:shown] {
			figures.send(job, now, send)
		}
		return nil
	}
	return s
}

// byImportance has the jobs first that are to have figures of their own.
func byImportance(a, b *mlv1.TrainingJob) int {
	endA, endB := a.Status.CompletionTime, b.Status.CompletionTime
	switch {
	case endA == nil && endB != nil:
		return -1
	case endA != nil && endB == nil:
		return 1
	case endA != nil:
		if later := endB.Compare(endA.Time); later != 0 {
			return later
		}
	}
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// jobFigures are the metrics of single jobs, read from their status.
type jobFigures struct {
	state, progress, epoch, duration, running, waiting, lastProgress, completion figure
	gpus, workers, utilization, loss, accuracy, restarts, disruptions            figure
	checkpointTime, checkpointAge, checkpointEpoch, checkpointSize               figure
	interval, frequency, ready, cost, costPerHour                                figure
}

func newJobFigures(s *scraped) *jobFigures {
	gauge := func(name, help string, labels ...string) figure {
		return s.gauge(name, help, append([]string{"namespace", "training_job"}, labels...)...)
	}
	counter := func(name, help string, labels ...string) figure {
		return s.counter(name, help, append([]string{"namespace", "training_job"}, labels...)...)
	}
	return &jobFigures{
		state:    gauge("trainingjob_state", "1 for the state that the job is in.", "state"),
		progress: gauge("trainingjob_progress_percent", "Share of the training that is done, 0 to 100."),
		epoch:    gauge("trainingjob_current_epoch", "Epoch in progress, from 1."),
		duration: gauge("trainingjob_duration_seconds", "Time since all workers first ran, until the end of the job.", "state"),
		running:  gauge("trainingjob_running_seconds", "Time since all workers of a running job last began to run."),
		waiting: gauge("trainingjob_waiting_seconds", "Time since which an unfinished job waits for its workers to run, by what it waits for.",
			"state", "reason"),
		lastProgress: gauge("trainingjob_last_progress_timestamp_seconds",
			"When the figures of a running job last changed, or it began to run if that was later, in seconds since 1970."),
		completion:  gauge("trainingjob_completion_timestamp_seconds", "When the job ended, in seconds since 1970."),
		gpus:        gauge("trainingjob_allocated_gpus", "GPUs that the workers of an unfinished job hold together."),
		workers:     gauge("trainingjob_allocated_workers", "Workers of an unfinished job."),
		utilization: gauge("trainingjob_gpu_utilization_percent", "GPU utilization last reported by replica 0, 0 to 100."),
		loss:        gauge("trainingjob_loss", "Training loss last reported."),
		accuracy:    gauge("trainingjob_accuracy", "Accuracy last reported, 0 to 1."),
		restarts:    counter("trainingjob_restarts_total", "Restarts of the whole job, for whatever reason."),
		disruptions: counter("trainingjob_disruptions_total", "Restarts that were due to preemption, eviction, the loss of a node or a change of scale."),

		checkpointTime:  gauge("trainingjob_checkpoint_timestamp_seconds", "When the newest checkpoint was made, in seconds since 1970."),
		checkpointAge:   gauge("trainingjob_checkpoint_age_seconds", "Age of the newest checkpoint of an unfinished job."),
		checkpointEpoch: gauge("trainingjob_checkpoint_epoch", "Epoch of the newest checkpoint, from 1."),
		checkpointSize:  gauge("trainingjob_checkpoint_size_bytes", "Size of the newest checkpoint."),
		interval:        gauge("trainingjob_checkpoint_interval_seconds", "Time between two checkpoints of an unfinished job, where its spec says one."),
		frequency:       gauge("trainingjob_checkpoint_frequency_epochs", "Epochs between two checkpoints of an unfinished job."),
		ready:           gauge("trainingjob_checkpoint_ready", "1 when the checkpoint storage of an unfinished job can be used, else 0."),

		cost:        counter("trainingjob_cost_total", "What a job has cost so far by the prices of its nodes, as of its status.", "currency"),
		costPerHour: gauge("trainingjob_cost_per_hour", "What the running workers of a job cost per hour.", "currency"),
	}
}

// jobSender sends figures of one job, and leaves out what there is no value of.
type jobSender struct {
	*jobFigures
	*mlv1.TrainingJob
	now  time.Time
	send sender
}

func (f *jobFigures) send(job *mlv1.TrainingJob, now time.Time, send sender) {
	s := jobSender{f, job, now, send}
	s.sendProgress()
	s.sendCheckpoint()
	if job.Status.CompletionTime == nil {
		s.sendUnfinished()
	}
}

func (s *jobSender) value(of figure, value float64, labels ...string) {
	s.send(of, value, append([]string{s.Namespace, s.Name}, labels...)...)
}

// number sends a number that a status has as text.
func (s *jobSender) number(of figure, text string, labels ...string) {
	if value, err := strconv.ParseFloat(text, 64); err == nil {
		s.value(of, value, labels...)
	}
}

func (s *jobSender) time(of figure, at *metav1.Time) {
	if seconds, ok := timestamp(at); ok {
		s.value(of, seconds)
	}
}

// since sends how long something lasts; clocks of two machines may differ.
func (s *jobSender) since(of figure, at time.Time, labels ...string) {
	s.value(of, max(s.now.Sub(at), 0).Seconds(), labels...)
}

func (s *jobSender) sendProgress() {
	status, state := &s.Status, string(s.Status.State)
	if state != "" {
		s.value(s.state, 1, state)
	}
	s.number(s.progress, strings.TrimSuffix(status.Progress, "%"))
	if status.CurrentEpoch > 0 {
		s.value(s.epoch, float64(status.CurrentEpoch))
	}
	if status.StartTime != nil {
		end := ptr.Deref(status.CompletionTime, metav1.NewTime(s.now))
		s.value(s.duration, end.Sub(status.StartTime.Time).Seconds(), state)
	}
	switch status.State {
	case mlv1.StateRunning:
		s.sendRunning()
	case mlv1.StatePending, mlv1.StateInitializing, mlv1.StateRestarting:
		s.since(s.waiting, s.waitsSince(), state, status.Reason)
	}
	s.time(s.completion, status.CompletionTime)
	for name, of := range map[string]figure{"loss": s.loss, "accuracy": s.accuracy} {
		if value, ok := status.Metrics[name]; ok {
			s.value(of, value)
		}
	}
	s.value(s.restarts, float64(status.RestartCount))
	s.value(s.disruptions, float64(status.DisruptionCount))
	if status.Cost != nil {
		s.number(s.cost, status.Cost.Total, status.Cost.Currency)
		s.number(s.costPerHour, status.Cost.PerHour, status.Cost.Currency)
	}
}

// sendRunning sends the time of the last progress only of jobs whose figures are read.
func (s *jobSender) sendRunning() {
	last := s.Status.MetricsTime
	if running := meta.FindStatusCondition(s.Status.Conditions, reasons.ConditionRunning); running != nil {
		s.since(s.running, running.LastTransitionTime.Time)
		if last.Before(&running.LastTransitionTime) {
			last = &running.LastTransitionTime
		}
	}
	if ptr.Deref(s.Spec.Monitoring.Enabled, true) {
		s.time(s.lastProgress, last)
	}
}

// waitsSince is the time of the creation, when the workers last ran, or of the resumption.
func (s *jobSender) waitsSince() time.Time {
	since := s.CreationTimestamp.Time
	for _, condition := range s.Status.Conditions {
		ran := condition.Type == reasons.ConditionRunning && condition.Status == metav1.ConditionFalse && s.Status.StartTime != nil
		resumed := condition.Type == reasons.ConditionSuspended && condition.Reason == reasons.Resumed
		if at := condition.LastTransitionTime.Time; (ran || resumed) && at.After(since) {
			since = at
		}
	}
	return since
}

func (s *jobSender) sendCheckpoint() {
	checkpoint := s.Status.Checkpoint
	if checkpoint == nil {
		return
	}
	s.time(s.checkpointTime, checkpoint.Time)
	if checkpoint.Time != nil && s.Status.CompletionTime == nil {
		s.since(s.checkpointAge, checkpoint.Time.Time)
	}
	if checkpoint.Epoch > 0 {
		s.value(s.checkpointEpoch, float64(checkpoint.Epoch))
	}
	if checkpoint.SizeBytes > 0 {
		s.value(s.checkpointSize, float64(checkpoint.SizeBytes))
	}
}

func (s *jobSender) sendUnfinished() {
	if held := s.Status.Resources; held != nil {
		s.value(s.gpus, float64(held.GPUs))
		s.value(s.workers, float64(held.Workers))
		if held.GPUUtilizationPercent != nil {
			s.value(s.utilization, *held.GPUUtilizationPercent)
		}
	}
	if c := s.Spec.Checkpoint; c != nil && ptr.Deref(c.Enabled, true) {
		s.value(s.frequency, float64(max(c.Frequency, 1)))
		if c.Interval != nil {
			s.value(s.interval, c.Interval.Seconds())
		}
	}
	if ready := meta.FindStatusCondition(s.Status.Conditions, reasons.ConditionCheckpointReady); ready != nil {
		value := 0.0
		if ready.Status == metav1.ConditionTrue {
			value = 1
		}
		s.value(s.ready, value)
	}
}

func timestamp(at *metav1.Time) (float64, bool) {
	if at.IsZero() {
		return 0, false
	}
	return float64(at.UnixMilli()) / 1000, true
}
