package metrics

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// listTimeout bounds the reading of the jobs for one scrape; the cache answers in far less.
const listTimeout = 5 * time.Second

// trainingJobStatus turns the status of every training job into gauges at the time of a scrape, so that no series
// outlives its job.
type trainingJobStatus struct {
	jobs    client.Reader
	maxJobs int
	clock   clock.PassiveClock

	total, progress, epoch, duration, gpus, workers, loss, accuracy, utilization *prometheus.Desc
}

// NewTrainingJobStatus returns a collector of the figures in the status of all training jobs, read from the cache.
// Gauges per job are given for the maxJobs oldest jobs only; trainingjob_total counts all.
func NewTrainingJobStatus(jobs client.Reader, maxJobs int, now clock.PassiveClock) prometheus.Collector {
	perJob := []string{"namespace", "training_job"}
	describe := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &trainingJobStatus{
		jobs: jobs, maxJobs: maxJobs, clock: now,
		total:       describe("trainingjob_total", "Training jobs that exist, by state.", "namespace", "state"),
		progress:    describe("trainingjob_progress_percent", "Share of the training that is done, 0 to 100.", perJob...),
		epoch:       describe("trainingjob_current_epoch", "Epoch in progress, from 1.", perJob...),
		duration:    describe("trainingjob_duration_seconds", "Time since all workers first ran, until the end of the job.", append(perJob, "state")...),
		gpus:        describe("trainingjob_allocated_gpus", "GPUs that the workers of an unfinished job hold together.", perJob...),
		workers:     describe("trainingjob_allocated_workers", "Workers of an unfinished job.", perJob...),
		loss:        describe("trainingjob_loss", "Training loss last reported.", perJob...),
		accuracy:    describe("trainingjob_accuracy", "Accuracy last reported, 0 to 1.", perJob...),
		utilization: describe("trainingjob_gpu_utilization_percent", "GPU utilization last reported by replica 0, 0 to 100.", perJob...),
	}
}

// Describe implements prometheus.Collector.
func (c *trainingJobStatus) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{c.total, c.progress, c.epoch, c.duration, c.gpus, c.workers, c.loss, c.accuracy, c.utilization} {
		out <- desc
	}
}

// Collect implements prometheus.Collector.
func (c *trainingJobStatus) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	var list mlv1.TrainingJobList
	if err := c.jobs.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		out <- prometheus.NewInvalidMetric(c.total, err)
		return
	}
	slices.SortFunc(list.Items, func(a, b mlv1.TrainingJob) int { // the cache has no order of its own
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	type group struct{ namespace, state string }
	counts := map[group]int{}
	for i := range list.Items {
		job := &list.Items[i]
		counts[group{job.Namespace, string(job.Status.State)}]++
		if i < c.maxJobs {
			c.collectJob(job, out)
		}
	}
	for of, count := range counts {
		out <- prometheus.MustNewConstMetric(c.total, prometheus.GaugeValue, float64(count), of.namespace, of.state)
	}
}

func (c *trainingJobStatus) collectJob(job *mlv1.TrainingJob, out chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, append([]string{job.Namespace, job.Name}, labels...)...)
	}
	status := job.Status
	if percent, err := strconv.ParseFloat(strings.TrimSuffix(status.Progress, "%"), 64); err == nil {
		gauge(c.progress, percent)
	}
	if status.CurrentEpoch > 0 {
		gauge(c.epoch, float64(status.CurrentEpoch))
	}
	if status.StartTime != nil {
		end := c.clock.Now()
		if status.CompletionTime != nil {
			end = status.CompletionTime.Time
		}
		gauge(c.duration, end.Sub(status.StartTime.Time).Seconds(), string(status.State))
	}
	for name, desc := range map[string]*prometheus.Desc{"loss": c.loss, "accuracy": c.accuracy} {
		if value, ok := status.Metrics[name]; ok {
			gauge(desc, value)
		}
	}
	if status.Resources != nil && status.CompletionTime == nil {
		gauge(c.gpus, float64(status.Resources.GPUs))
		gauge(c.workers, float64(status.Resources.Workers))
		if utilization := status.Resources.GPUUtilizationPercent; utilization != nil {
			gauge(c.utilization, *utilization)
		}
	}
}
