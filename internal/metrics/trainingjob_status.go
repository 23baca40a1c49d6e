package metrics

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// listTimeout bounds the reading of the jobs for one scrape; the cache answers in far less.
const listTimeout = 5 * time.Second

// trainingJobStatus turns the status of every training job into figures at the time of a scrape, so that no series
// outlives its job, and counters go on when the manager starts again.
type trainingJobStatus struct {
	jobs    client.Reader
	maxJobs int
	clock   clock.PassiveClock

	total, omitted *prometheus.Desc
	perJob         perJob
}

// NewTrainingJobStatus returns a collector of the figures in the status of all training jobs, read from the cache.
// maxJobs jobs have figures of their own: unfinished jobs before finished ones, of the unfinished the oldest, of the
// finished those that ended last. trainingjob_total counts all.
func NewTrainingJobStatus(jobs client.Reader, maxJobs int, now clock.PassiveClock) prometheus.Collector {
	return &trainingJobStatus{
		jobs: jobs, maxJobs: maxJobs, clock: now,
		total: prometheus.NewDesc("trainingjob_total", "Training jobs that exist, by state.", []string{"namespace", "state"}, nil),
		omitted: prometheus.NewDesc("trainingjob_series_omitted",
			"Training jobs without figures of their own, because there are more than --metrics-max-jobs.", nil, nil),
		perJob: newPerJob(),
	}
}

// Describe implements prometheus.Collector.
func (c *trainingJobStatus) Describe(out chan<- *prometheus.Desc) {
	out <- c.total
	out <- c.omitted
	for _, f := range c.perJob {
		out <- f.desc
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
	type group struct{ namespace, state string }
	counts := map[group]int{}
	jobs := make([]*mlv1.TrainingJob, len(list.Items)) // the structs are large to sort
	for i := range list.Items {
		jobs[i] = &list.Items[i]
		counts[group{jobs[i].Namespace, string(jobs[i].Status.State)}]++
	}
	for of, count := range counts {
		out <- prometheus.MustNewConstMetric(c.total, prometheus.GaugeValue, float64(count), of.namespace, of.state)
	}
	shown := min(len(jobs), max(c.maxJobs, 0))
	out <- prometheus.MustNewConstMetric(c.omitted, prometheus.GaugeValue, float64(len(jobs)-shown))
	slices.SortFunc(jobs, byImportance) // the cache has no order of its own
	now := c.clock.Now()
	for _, job := range jobs[:shown] {
		c.perJob.collect(job, now, out)
	}
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
