package level4

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	dto "github.com/prometheus/client_model/go"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/lab"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/operator"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/suite"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/training"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/verdict"
)

const metricsTest = "level4-metrics"

// Series that must exist, of those in docs/metrics.md, while a job runs and when it is Completed. Left out are the ones
// that need an error, a failed job or a GPU to exist.
var (
	whileRunning = []series{
		{"trainingjob_allocated_workers", true}, {"trainingjob_allocated_gpus", true},
		{"trainingjob_total", false}, {"trainingjob_created_total", false},
		{"trainingjob_reconciliation_total", true}, {"trainingjob_reconciliation_duration_seconds", true},
	}
	whenCompleted = []series{
		{"trainingjob_progress_percent", true}, {"trainingjob_current_epoch", true}, {"trainingjob_duration_seconds", true},
		{"trainingjob_loss", true}, {"trainingjob_accuracy", true}, {"trainingjob_completed_total", false},
		{"controller_runtime_reconcile_total", false}, {"workqueue_depth", false}, {"go_goroutines", false},
	}
)

// series is a metric, of which there must be one for the job itself where it has the label training_job.
type series struct {
	name   string
	ofAJob bool
}

func metrics() suite.Test {
	return suite.Test{
		Name:     metricsTest,
		Suite:    Suite,
		Question: "Does the manager serve the documented metrics, of itself and of a TrainingJob, to a client that may read them, and to no other?",
		Patience: training.Patience,
		Run:      areServed,
	}
}

func areServed(ctx context.Context, l *lab.Lab) error {
	source, err := findEndpoint(ctx, l)
	if err != nil {
		return err
	}
	l.Logf("the metrics are at %s", source.url)
	if err := source.refusesStrangers(ctx); err != nil {
		return err
	}
	job, err := training.Example(l, "metrics")
	if err != nil {
		return err
	}
	// There must be time to look while it runs.
	training.Slow(job, 4, 100*time.Millisecond)
	if err := training.Start(ctx, l, metricsTest, job); err != nil {
		return err
	}
	for _, step := range []struct {
		state mlv1.State
		want  []series
	}{{mlv1.StateRunning, whileRunning}, {mlv1.StateCompleted, whenCompleted}} {
		if _, err := training.Reach(ctx, l, job, "is "+string(step.state), training.In(step.state)); err != nil {
			return err
		}
		if err := source.has(ctx, l, job, step.want); err != nil {
			return fmt.Errorf("while the job is %s: %w", step.state, err)
		}
	}
	return nil
}

// findEndpoint takes the port named https of the bundle's only Service that has one.
func findEndpoint(ctx context.Context, l *lab.Lab) (*endpoint, error) {
	deployment, err := operator.Deployment(ctx, l)
	if err != nil {
		return nil, err
	}
	for _, object := range l.Bundle.Others("Service") {
		var service corev1.Service
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &service); err != nil {
			return nil, fmt.Errorf("read Service %s of the bundle: %w", object.GetName(), err)
		}
		for _, port := range service.Spec.Ports {
			if port.Name == "https" {
				return newEndpoint(l.Config, fmt.Sprintf("https://%s.%s.svc:%d/metrics", service.Name, deployment.Namespace, port.Port))
			}
		}
	}
	return nil, verdict.Failf("the bundle has no Service with a port named https: nobody finds the metrics")
}

// refusesStrangers asks without credentials.
func (e *endpoint) refusesStrangers(ctx context.Context) error {
	code, _, err := e.get(ctx, "")
	if err != nil {
		return err
	}
	if code != http.StatusUnauthorized && code != http.StatusForbidden {
		return verdict.Failf("%s answers %d to a client without credentials, want 401 or 403", e.url, code)
	}
	return nil
}

// has waits until the series are there: the manager reads the cache, which may be a moment behind.
func (e *endpoint) has(ctx context.Context, l *lab.Lab, job *mlv1.TrainingJob, want []series) error {
	soon, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var missing []error
	err := l.Until(soon, e.url+" has the series", func(ctx context.Context) (bool, error) {
		families, err := e.scrape(ctx)
		if err != nil {
			return false, err
		}
		missing = lacking(families, job, want)
		return len(missing) == 0, nil
	})
	if err != nil && len(missing) > 0 {
		return errors.Join(missing...)
	}
	return err
}

// lacking says which of the series are missing.
func lacking(families map[string]*dto.MetricFamily, job *mlv1.TrainingJob, want []series) (missing []error) {
	for _, series := range want {
		family, ok := families[series.name]
		switch {
		case !ok || len(family.Metric) == 0:
			missing = append(missing, verdict.Failf("metric %s is not served", series.name))
		case series.ofAJob && !hasJob(family, job):
			missing = append(missing, verdict.Failf("metric %s has no series of TrainingJob %s", series.name, job.Name))
		}
	}
	return missing
}

func hasJob(family *dto.MetricFamily, job *mlv1.TrainingJob) bool {
	for _, metric := range family.Metric {
		labels := map[string]string{}
		for _, pair := range metric.Label {
			labels[pair.GetName()] = pair.GetValue()
		}
		if labels["namespace"] == job.Namespace && labels["training_job"] == job.Name {
			return true
		}
	}
	return false
}
