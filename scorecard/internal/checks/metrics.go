package checks

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
	"github.com/dcnlab/spot-training-operator/scorecard/internal/cluster"
)

// Metrics of docs/metrics.md that must exist while a job runs and when it is Completed, except those that need an error, a
// failed job or a GPU.
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

// series is a metric. ofAJob: one of its series must have the job's name in the label training_job.
type series struct {
	name   string
	ofAJob bool
}

func metricsServed(ctx context.Context, env *cluster.Env) error {
	source, err := findEndpoint(ctx, env)
	if err != nil {
		return err
	}
	env.Logf("the metrics are at %s", source.url)
	if err := source.refusesStrangers(ctx); err != nil {
		return err
	}
	// There must be time to scrape while it runs.
	job, err := startJob(ctx, env, "metrics", slow(4))
	if err != nil {
		return err
	}
	for _, step := range []struct {
		state mlv1.State
		want  []series
	}{{mlv1.StateRunning, whileRunning}, {mlv1.StateCompleted, whenCompleted}} {
		if _, err := reachState(ctx, env, job, step.state); err != nil {
			return err
		}
		if err := source.has(ctx, env, job, step.want); err != nil {
			return fmt.Errorf("while the job is %s: %w", step.state, err)
		}
	}
	return nil
}

// findEndpoint uses the port named https of the bundle's Services.
func findEndpoint(ctx context.Context, env *cluster.Env) (*endpoint, error) {
	deployment, err := env.Deployment(ctx)
	if err != nil {
		return nil, err
	}
	for _, object := range env.Bundle.ObjectsOf("Service") {
		var service corev1.Service
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &service); err != nil {
			return nil, fmt.Errorf("read Service %s of the bundle: %w", object.GetName(), err)
		}
		for _, port := range service.Spec.Ports {
			if port.Name == "https" {
				return newEndpoint(env.Config, fmt.Sprintf("https://%s.%s.svc:%d/metrics", service.Name, deployment.Namespace, port.Port))
			}
		}
	}
	return nil, cluster.Failf("the bundle has no Service with a port named https for the metrics")
}

func (e *endpoint) refusesStrangers(ctx context.Context) error {
	code, _, err := e.get(ctx, "")
	if err != nil {
		return err
	}
	if code != http.StatusUnauthorized && code != http.StatusForbidden {
		return cluster.Failf("%s answers %d to a client without credentials, want 401 or 403", e.url, code)
	}
	return nil
}

// has waits until the series are there: the manager reads the cache, which may be a moment behind.
func (e *endpoint) has(ctx context.Context, env *cluster.Env, job *mlv1.TrainingJob, want []series) error {
	soon, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var missing []error
	err := env.Until(soon, e.url+" has the series", func(ctx context.Context) (bool, error) {
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

func lacking(families map[string]*dto.MetricFamily, job *mlv1.TrainingJob, want []series) (missing []error) {
	for _, series := range want {
		family, ok := families[series.name]
		switch {
		case !ok || len(family.Metric) == 0:
			missing = append(missing, cluster.Failf("metric %s is not served", series.name))
		case series.ofAJob && !hasJob(family, job):
			missing = append(missing, cluster.Failf("metric %s has no series of TrainingJob %s", series.name, job.Name))
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
