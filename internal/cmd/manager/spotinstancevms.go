package manager

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/controllers/spotinstancevm"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/cloud"
	"github.com/dcnlab/spot-training-operator/internal/cloud/gcp"
	"github.com/dcnlab/spot-training-operator/internal/cloud/inventory"
	"github.com/dcnlab/spot-training-operator/internal/metrics"
	"github.com/dcnlab/spot-training-operator/internal/queueing"
	"github.com/dcnlab/spot-training-operator/internal/redact"
)

// spotOptions are the flags for spot instances.
type spotOptions struct {
	gcpEndpoint  string
	listInterval time.Duration
}

func (o *spotOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.gcpEndpoint, "gcp-endpoint", "", "URL of the Compute Engine API (default: Google's)")
	flags.DurationVar(&o.listInterval, "cloud-list-interval", 30*time.Second,
		"interval at which the instances of each zone are listed, at least 1s")
}

func (o *spotOptions) validate() error {
	if o.listInterval < time.Second {
		return fmt.Errorf("--cloud-list-interval: %s is less than 1s: choose at least 1s, since each list is a request to the provider", o.listInterval)
	}
	if o.gcpEndpoint == "" {
		return nil
	}
	if at, err := url.Parse(o.gcpEndpoint); err != nil || at.Host == "" || (at.Scheme != "http" && at.Scheme != "https") {
		return fmt.Errorf("--gcp-endpoint: %q is no URL: write for example https://compute.googleapis.com", o.gcpEndpoint)
	}
	return nil
}

func addSpotInstanceVMs(ctx context.Context, mgr ctrl.Manager, o options, settings build.Settings, decider *queueing.Service) error {
	// The manager's own client would set up a cache of all Secrets, which the manager may not even list.
	uncached, err := client.New(mgr.GetConfig(), client.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
	})
	if err != nil {
		return fmt.Errorf("set up the client for what instances join with: %w", err)
	}
	reconciler := &spotinstancevm.Reconciler{
		Client: mgr.GetClient(), Direct: mgr.GetAPIReader(), Clock: clock.RealClock{},
		Recorder: redact.Events(mgr.GetEventRecorder("spot-training-operator")),
		Metrics:  metrics.NewSpotInstances(ctrlmetrics.Registry),
		Provide: func(ctx context.Context, account inventory.Account) (cloud.Provider, error) {
			return gcp.New(ctx, gcp.Options{
				Project: account.Project, Credentials: account.Credentials, Endpoint: o.spot.gcpEndpoint,
				UserAgent: "spot-training-operator",
			})
		},
		Joining: &spotinstancevm.KubeadmJoining{Client: uncached, Direct: mgr.GetAPIReader(), Namespace: o.webhooks.namespace},
		Uses:    decider.NodeUses,
		Queued:  func(job *mlv1.TrainingJob) []*corev1.Pod { return trainingjob.PodsWithoutPlace(job, settings) },
	}
	err = reconciler.SetupWithManager(ctx, mgr, spotinstancevm.Options{
		Concurrency: o.concurrency, ListInterval: o.spot.listInterval,
	})
	if err != nil {
		return err
	}
	// Only the leader tells: two replicas must not both report the same instances.
	return mgr.Add(ctrlmanager.RunnableFunc(func(context.Context) error {
		return errors.Join(
			ctrlmetrics.Registry.Register(metrics.NewSpotInstanceStatus(mgr.GetCache())),
			ctrlmetrics.Registry.Register(metrics.NewSpotConditions(mgr.GetCache(), o.metricsMaxJobs)),
		)
	}))
}
