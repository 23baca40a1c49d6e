package metrics

import (
	"cmp"
	"context"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
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
