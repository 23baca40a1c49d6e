package manager

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/dcnlab/spot-training-operator/controllers/spotinstancejob"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/metrics"
	"github.com/dcnlab/spot-training-operator/internal/queueing"
	"github.com/dcnlab/spot-training-operator/internal/redact"
)

// addSpotControllers adds what keeps jobs alive on spot instances.
func addSpotControllers(ctx context.Context, mgr ctrl.Manager, o options, settings build.Settings, decider *queueing.Service) error {
	return errors.Join(addNodeAgent(mgr, o), addSpotInstanceVMs(ctx, mgr, o, settings, decider), addSpotInstanceJobs(ctx, mgr, o))
}

func addSpotInstanceJobs(ctx context.Context, mgr ctrl.Manager, o options) error {
	jobs := &spotinstancejob.Reconciler{
		Client: mgr.GetClient(), Direct: mgr.GetAPIReader(), Clock: clock.RealClock{},
		Recorder: redact.Events(mgr.GetEventRecorder("spot-training-operator")),
		Metrics:  metrics.NewSpotInstanceJobs(ctrlmetrics.Registry),
	}
	if err := jobs.SetupWithManager(ctx, mgr, spotinstancejob.Options{Concurrency: o.concurrency}); err != nil {
		return fmt.Errorf("set up the SpotInstanceJob controller: %w", err)
	}
	// Runnables start with the leadership: two replicas must not both report the state of the same jobs.
	return mgr.Add(ctrlmanager.RunnableFunc(func(context.Context) error {
		return ctrlmetrics.Registry.Register(metrics.NewSpotInstanceJobStatus(mgr.GetCache(), o.metricsMaxJobs))
	}))
}
