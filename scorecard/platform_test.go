package main

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/dcnlab/spot-training-operator/controllers/aijob"
	"github.com/dcnlab/spot-training-operator/controllers/queuestatus"
	"github.com/dcnlab/spot-training-operator/controllers/workflow"
	"github.com/dcnlab/spot-training-operator/internal/metrics"
	"github.com/dcnlab/spot-training-operator/internal/queueing"
	"github.com/dcnlab/spot-training-operator/internal/workerdefaults"
)

// startPlatform adds the controllers of AI workloads to a manager.
func startPlatform(ctx context.Context, t *testing.T, mgr ctrl.Manager) {
	t.Helper()
	recorder := mgr.GetEventRecorder("spot-training-operator")
	decider := queueing.New(mgr, nil)
	decider.Add(aijob.Source(workerdefaults.Defaults{}, nil))
	jobs := &aijob.Reconciler{
		Client: mgr.GetClient(), Direct: mgr.GetAPIReader(), Clock: clock.RealClock{}, Recorder: recorder,
		Metrics: metrics.NewAIJobs(prometheus.NewRegistry()), Decider: decider,
	}
	require.NoError(t, jobs.SetupWithManager(ctx, mgr, aijob.Options{Concurrency: 1}))
	queues := &queuestatus.QueueReconciler{Client: mgr.GetClient(), Clock: clock.RealClock{}, Figures: decider}
	require.NoError(t, queues.SetupWithManager(mgr))
	clusters := &queuestatus.ClusterReconciler{Client: mgr.GetClient(), Clock: clock.RealClock{}, Figures: decider}
	require.NoError(t, clusters.SetupWithManager(mgr))
	agents := &workflow.AgentReconciler{Client: mgr.GetClient(), Clock: clock.RealClock{}}
	require.NoError(t, agents.SetupWithManager(mgr))
	workflows := &workflow.Reconciler{Client: mgr.GetClient(), Direct: mgr.GetAPIReader(), Clock: clock.RealClock{}, Recorder: recorder}
	require.NoError(t, workflows.SetupWithManager(ctx, mgr, workflow.Options{Concurrency: 1}))
	require.NoError(t, mgr.Add(decider))
}
