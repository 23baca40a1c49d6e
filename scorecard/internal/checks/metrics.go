package checks

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
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

func metricsServed(env *cluster.Env) {
	source := findEndpoint(env)
	env.Logf("the metrics are at %s", source.url)
	env.Check(source.refusesStrangers(env.Context))
	// There must be time to scrape while it runs.
	job := startJob(env, "metrics", slow(4))
	for _, step := range []struct {
		state mlv1.State
		want  []series
	}{{mlv1.StateRunning, whileRunning}, {mlv1.StateCompleted, whenCompleted}} {
		reachState(env, job, step.state)
		env.Checkf(source.has(env, job, step.want), "while the job is %s", step.state)
	}
}

// findEndpoint uses the port named https of the bundle's Services.
func findEndpoint(env *cluster.Env) *endpoint {
	deployment := env.Deployment()
	for _, object := range env.Bundle.ObjectsOf("Service") {
		var service corev1.Service
		env.Checkf(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &service), "read Service %s of the bundle", object.GetName())
		for _, port := range service.Spec.Ports {
			if port.Name == "https" {
				found, err := newEndpoint(env.Config, fmt.Sprintf("https://%s.%s.svc:%d/metrics", service.Name, deployment.Namespace, port.Port))
				env.Check(err)
				return found
			}
		}
	}
	env.Failf("the bundle has no Service with a port named https for the metrics")
	return nil
}

func (e *endpoint) refusesStrangers(ctx context.Context) error {
	code, _, err := e.get(ctx, e.stranger)
	if err != nil {
		return err
	}
	if code != http.StatusUnauthorized && code != http.StatusForbidden {
		return cluster.Failf("%s answers %d to a client without credentials, want 401 or 403", e.url, code)
	}
	return nil
}

// has waits until the series are there: the manager reads the cache, which may be a moment behind.
func (e *endpoint) has(env *cluster.Env, job *mlv1.TrainingJob, want []series) error {
	soon, cancel := context.WithTimeout(env.Context, 20*time.Second)
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
	return slices.ContainsFunc(family.Metric, func(metric *dto.Metric) bool {
		labels := map[string]string{}
		for _, pair := range metric.Label {
			labels[pair.GetName()] = pair.GetValue()
		}
		return labels["namespace"] == job.Namespace && labels["training_job"] == job.Name
	})
}
