package manager

import (
	"context"
	"fmt"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/dcnlab/spot-training-operator/controllers/aijob"
	"github.com/dcnlab/spot-training-operator/internal/metrics"
	"github.com/dcnlab/spot-training-operator/internal/queueing"
	"github.com/dcnlab/spot-training-operator/internal/redact"
)

// aiJobsAtOnce is how many AIJobs are reconciled at the same time for each TrainingJob: they are short, come by the thousand, and
// mostly wait for the API server.
const aiJobsAtOnce = 2

// addAIJobs adds the controller of AIJobs.
func addAIJobs(ctx context.Context, mgr ctrl.Manager, o options, decider queueing.Decider) error {
	jobs := &aijob.Reconciler{
		Client: mgr.GetClient(), Direct: mgr.GetAPIReader(), Clock: clock.RealClock{},
		Recorder: redact.Events(mgr.GetEventRecorder("spot-training-operator")),
		Metrics:  metrics.NewAIJobs(ctrlmetrics.Registry), Decider: decider,
	}
	if err := jobs.SetupWithManager(ctx, mgr, aijob.Options{Concurrency: aiJobsAtOnce * o.concurrency}); err != nil {
		return fmt.Errorf("set up the AIJob controller: %w", err)
	}
	return nil
}
