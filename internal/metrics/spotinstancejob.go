package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
)

// SpotInstanceJobs counts what happens to SpotInstanceJobs.
type SpotInstanceJobs struct {
	requested, completed *prometheus.CounterVec
	answers              *prometheus.HistogramVec
}

// NewSpotInstanceJobs registers the counters.
func NewSpotInstanceJobs(registry prometheus.Registerer) *SpotInstanceJobs {
	all := in(registry)
	return &SpotInstanceJobs{
		requested: all.counter("spotinstancejob_checkpoint_requests_total",
			"Checkpoints that were asked for, by cause: schedule or preemption.", "namespace", "cause"),
		completed: all.counter("spotinstancejob_checkpoints_completed_total", "Checkpoints of spot instance jobs that were complete.", "namespace"),
		answers: all.histogram("spotinstancejob_notice_to_checkpoint_request_seconds",
			"Time from the notice that a node is taken back until the checkpoint of its replica was asked for.",
			[]float64{.05, .1, .25, .5, 1, 2.5, 5, 15, 30}, "namespace"),
	}
}

// CheckpointRequested counts a checkpoint that was asked for, whether because of a preemption or by schedule.
func (m *SpotInstanceJobs) CheckpointRequested(namespace string, preemption bool) {
	cause := "schedule"
	if preemption {
		cause = "preemption"
	}
	m.requested.WithLabelValues(namespace, cause).Inc()
}

// CheckpointCompleted counts a checkpoint that was complete.
func (m *SpotInstanceJobs) CheckpointCompleted(namespace string) {
	m.completed.WithLabelValues(namespace).Inc()
}

// NoticeAnswered records how long after a notice the checkpoint was asked for.
func (m *SpotInstanceJobs) NoticeAnswered(namespace string, after time.Duration) {
	m.answers.WithLabelValues(namespace).Observe(max(after, 0).Seconds())
}

// NewSpotInstanceJobStatus returns a collector of the figures in the status of SpotInstanceJobs, read from the cache. At
// most maxJobs jobs that have not ended have figures of their own; spotinstancejob_total counts all.
func NewSpotInstanceJobStatus(jobs client.Reader, maxJobs int) prometheus.Collector {
	s := &scraped{}
	labels := []string{"namespace", "spot_instance_job"}
	total := s.gauge("spotinstancejob_total", "Spot instance jobs that exist, by phase.", "namespace", "phase")
	replicas := s.gauge("spotinstancejob_replicas", "Replicas that an unfinished job should have.", labels...)
	active := s.gauge("spotinstancejob_active_replicas", "Replicas of an unfinished job that run.", labels...)
	preemptions := s.counter("spotinstancejob_preemptions_total", "Replicas of an unfinished job that were lost to preemption.", labels...)
	restarts := s.counter("spotinstancejob_restarts_total", "Starts of replicas of an unfinished job beyond the first of each.", labels...)
	checkpoint := s.gauge("spotinstancejob_checkpoint_timestamp_seconds", "When the newest checkpoint of an unfinished job was complete.", labels...)
	wrong := s.gauge("spotinstancejob_condition_false", "1 for each condition of an unfinished SpotInstanceJob that is False.",
		"namespace", "spot_instance_job", "condition", "reason")
	s.collect = func(ctx context.Context, send sender) error {
		list, err := reconciling.List[*spotv1alpha1.SpotInstanceJob](ctx, jobs, &spotv1alpha1.SpotInstanceJobList{}, client.UnsafeDisableDeepCopy)
		if err != nil {
			return err
		}
		type group struct{ namespace, phase string }
		counts, shown := map[group]int{}, 0
		for _, job := range list {
			counts[group{job.Namespace, string(job.Status.Phase)}]++
			if job.Status.CompletionTime != nil || shown >= maxJobs {
				continue
			}
			shown++
			started := int32(0)
			for _, replica := range job.Status.JobStatuses {
				started += replica.RestartCount
			}
			send(replicas, float64(ptr.Deref(job.Spec.Replicas, 2)), job.Namespace, job.Name)
			send(active, float64(job.Status.ActiveReplicas), job.Namespace, job.Name)
			send(preemptions, float64(job.Status.PreemptionCount), job.Namespace, job.Name)
			send(restarts, float64(started), job.Namespace, job.Name)
			if at := job.Status.LastCheckpointTime; at != nil {
				send(checkpoint, float64(at.Unix()), job.Namespace, job.Name)
			}
			send.falseConditions(wrong, job, job.Status.Conditions)
		}
		for of, count := range counts {
			send(total, float64(count), of.namespace, of.phase)
		}
		return nil
	}
	return s
}
