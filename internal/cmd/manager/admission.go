package manager

import (
	"context"
	"errors"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/dcnlab/spot-training-operator/controllers/aijob"
	"github.com/dcnlab/spot-training-operator/controllers/queuestatus"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/metrics"
	"github.com/dcnlab/spot-training-operator/internal/queueing"
	"github.com/dcnlab/spot-training-operator/internal/queueing/scheduler"
)

// newAdmission makes what decides upon the jobs of all queues, and tells it of the kinds of jobs.
func newAdmission(mgr ctrl.Manager, settings build.Settings) *queueing.Service {
	decider := queueing.New(mgr, queueing.Options{Schedule: scheduler.Schedule, Metrics: metrics.NewAdmission(ctrlmetrics.Registry)})
	decider.Add(aijob.Source())
	decider.Add(trainingjob.Source(settings, queueing.PriorityClasses(mgr.GetCache())))
	return decider
}

// addAdmission adds it to the manager, with the controllers that report of queues and clusters.
func addAdmission(mgr ctrl.Manager, decider *queueing.Service) error {
	queues := &queuestatus.QueueReconciler{Client: mgr.GetClient(), Clock: clock.RealClock{}, Figures: decider}
	clusters := &queuestatus.ClusterReconciler{Client: mgr.GetClient(), Clock: clock.RealClock{}, Figures: decider}
	return errors.Join(
		queues.SetupWithManager(mgr), clusters.SetupWithManager(mgr), mgr.Add(decider),
		// Only the leader tells: two replicas must not both report the same queues.
		mgr.Add(ctrlmanager.RunnableFunc(func(context.Context) error {
			return ctrlmetrics.Registry.Register(metrics.NewQueueDepths(decider.Depths))
		})),
	)
}
