// Package manager is the subcommand that runs the operator's controllers.
package manager

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"

	operatorsv2 "github.com/operator-framework/api/pkg/operators/v2"
	"github.com/spf13/cobra"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob"
	"github.com/dcnlab/spot-training-operator/internal/accessreview"
	"github.com/dcnlab/spot-training-operator/internal/metrics"
	"github.com/dcnlab/spot-training-operator/internal/redact"
	"github.com/dcnlab/spot-training-operator/internal/tracing"
	"github.com/dcnlab/spot-training-operator/internal/training/progress"
)

// options are the flags of the subcommand.
type options struct {
	metricsAddress   string
	metricsSecure    bool
	metricsMaxJobs   int
	probeAddress     string
	leaderElect      bool
	leaderNamespace  string
	concurrency      int
	resync           time.Duration
	qps              float32
	burst            int
	progressInterval time.Duration
	progressWorkers  int
	migrationQPS     float32
	workerImage      string
	tensorBoardImage string
	isolateJobs      bool
	agentImage       string
	logLevel         string
	webhooks         webhookOptions
	nodeAgent        nodeAgentOptions
	spot             spotOptions
	workerPools      workerPoolOptions
}

// workerImageVariable names the default worker image, under the prefix that OLM's tools look for.
const workerImageVariable = "RELATED_IMAGE_TRAINING_WORKER"

// agentImageVariable names the image of the checkpoint agent: the manager's own.
const agentImageVariable = "RELATED_IMAGE_CHECKPOINT_AGENT"

// tensorBoardImageVariable names the default image of TensorBoard. It has not that prefix: the image is another project's,
// and only needed by jobs that ask for it.
const tensorBoardImageVariable = "TENSORBOARD_IMAGE"

// New returns the subcommand.
func New() *cobra.Command {
	var o options
	command := &cobra.Command{
		Use:   "manager",
		Short: "Run the controllers of all kinds",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return run(command.Context(), o)
		},
	}
	flags := command.Flags()
	flags.StringVar(&o.metricsAddress, "metrics-bind-address", ":8443", "address of the metrics server; 0 turns it off")
	flags.BoolVar(&o.metricsSecure, "metrics-secure", true, "serve metrics over TLS to authenticated and authorized clients only")
	flags.IntVar(&o.metricsMaxJobs, "metrics-max-jobs", 500, "number of training jobs that get metric series of their own")
	flags.StringVar(&o.probeAddress, "health-probe-bind-address", ":8081", "address of /healthz and /readyz")
	flags.BoolVar(&o.leaderElect, "leader-elect", false, "work only while holding the leader's lease, so that several replicas can run")
	flags.StringVar(&o.leaderNamespace, "leader-election-namespace", "", "namespace of the leader's lease (default: the manager's own)")
	flags.IntVar(&o.concurrency, "concurrency", 10, "number of training jobs reconciled at the same time")
	flags.DurationVar(&o.resync, "resync", 5*time.Minute, "interval at which every object is looked at again")
	flags.Float32Var(&o.qps, "kube-api-qps", 500, "requests per second to the API server; -1 for no limit")
	flags.IntVar(&o.burst, "kube-api-burst", 1000, "requests to the API server at once above --kube-api-qps")
	flags.DurationVar(&o.progressInterval, "progress-interval", 30*time.Second, "interval at which the metrics of a running job are read")
	flags.IntVar(&o.progressWorkers, "progress-workers", 20, "number of running jobs whose metrics are read at the same time")
	flags.Float32Var(&o.migrationQPS, "storage-migration-qps", 100,
		"objects written anew per second when the storage version of their kind has changed")
	flags.StringVar(&o.workerImage, "training-worker-image", envOr(workerImageVariable, "spot-training-operator-worker:latest"),
		"image of workers whose job names none (environment: "+workerImageVariable+")")
	flags.BoolVar(&o.isolateJobs, "isolate-jobs", false,
		"give each job whose spec.networking.isolation is not set a NetworkPolicy that closes its pods to the pods of others")
	flags.StringVar(&o.agentImage, "agent-image", envOr(agentImageVariable, "spot-training-operator:latest"),
		"image of the checkpoint agent in the workers' pods: the manager's own (environment: "+agentImageVariable+")")
	flags.StringVar(&o.tensorBoardImage, "tensorboard-image", envOr(tensorBoardImageVariable, "tensorflow/tensorflow:2.19.0"),
		"image of TensorBoard beside jobs that ask for it and name none: any with the commands tensorboard and sh (environment: "+
			tensorBoardImageVariable+")")
	flags.StringVar(&o.logLevel, "log-level", envOr("LOG_LEVEL", "info"), "debug, info, warn or error (environment: LOG_LEVEL)")
	o.webhooks.addFlags(flags)
	o.nodeAgent.addFlags(flags)
	o.spot.addFlags(flags)
	o.workerPools.addFlags(flags)
	return command
}

func envOr(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

func run(ctx context.Context, o options) error {
	if err := setLogger(o.logLevel); err != nil {
		return err
	}
	limitGarbage()
	stopTracing, err := tracing.Start(ctx, "spot-training-operator", ctrl.Log)
	if err != nil {
		return err
	}
	defer stopTracing()
	if o.migrationQPS <= 0 {
		return fmt.Errorf("--storage-migration-qps: %g is not above 0: name the number of objects to write per second", o.migrationQPS)
	}
	if err := o.spot.validate(); err != nil {
		return err
	}
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the cluster: %w", err)
	}
	config.QPS, config.Burst = o.qps, o.burst
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"

	hooks, err := newWebhooks(o.webhooks, config, scheme)
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                        scheme,
		WebhookServer:                 hooks.server,
		Cache:                         cacheOptions(o),
		Client:                        client.Options{Cache: &client.CacheOptions{EnableReadYourWritesConsistency: ptr.To(true)}},
		Metrics:                       metricsOptions(o),
		HealthProbeBindAddress:        o.probeAddress,
		LeaderElection:                o.leaderElect,
		LeaderElectionID:              "spot-training-operator.ml.example.com",
		LeaderElectionNamespace:       o.leaderNamespace,
		LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return fmt.Errorf("set up the manager: %w", err)
	}
	settings := build.Settings{
		WorkerImage: o.workerImage, TensorBoardImage: o.tensorBoardImage, AgentImage: o.agentImage,
		Namespace: o.webhooks.namespace, IsolateJobs: o.isolateJobs,
	}
	if err := addControllers(ctx, mgr, o, settings); err != nil {
		return err
	}
	if err := hooks.addTo(mgr, settings); err != nil {
		return err
	}
	if err := addStorageMigration(mgr, o); err != nil {
		return err
	}
	err = errors.Join(mgr.AddHealthzCheck("healthz", healthz.Ping), mgr.AddReadyzCheck("readyz", healthz.Ping))
	if err != nil {
		return fmt.Errorf("add the health checks: %w", err)
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("run the manager: %w", err)
	}
	return nil
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, operatorsv2.AddToScheme,
		mlv1.AddToScheme, spotv1alpha1.AddToScheme, aiplatformv1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("register the API types: %w", err)
		}
	}
	return scheme, nil
}

func cacheOptions(o options) cache.Options {
	return cache.Options{
		SyncPeriod:       &o.resync,
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject:         cachedObjects(o),
	}
}

func metricsOptions(o options) metricsserver.Options {
	server := metricsserver.Options{
		BindAddress: o.metricsAddress, SecureServing: o.metricsSecure,
		TLSOpts: []func(*tls.Config){withoutHTTP2},
	}
	if o.metricsSecure {
		server.FilterProvider = accessreview.MetricsFilter
	}
	return server
}

func addControllers(ctx context.Context, mgr ctrl.Manager, o options, settings build.Settings) error {
	reported := make(chan event.TypedGenericEvent[types.NamespacedName], 1024)
	counters := metrics.NewTrainingJobs(ctrlmetrics.Registry, o.metricsMaxJobs)
	scraper := progress.NewScraper(progress.ScraperOptions{
		Interval: o.progressInterval, Workers: o.progressWorkers,
		Changed: func(job types.NamespacedName) {
			select {
			case reported <- event.TypedGenericEvent[types.NamespacedName]{Object: job}:
			case <-ctx.Done():
			}
		},
		Scraped: func(job types.NamespacedName, took time.Duration, err error) {
			counters.Scraped(job.Namespace, job.Name, took, err != nil)
		},
	})
	if err := mgr.Add(scraper); err != nil {
		return fmt.Errorf("add the progress scraper: %w", err)
	}
	decider := newAdmission(mgr, settings)
	trainingJobs := &trainingjob.Reconciler{
		Client: mgr.GetClient(), Direct: mgr.GetAPIReader(), Clock: clock.RealClock{},
		Recorder: redact.Events(mgr.GetEventRecorder("spot-training-operator")), Progress: scraper,
		Admission: decider,
		Metrics:   counters,
		Settings:  settings,
	}
	err := trainingJobs.SetupWithManager(ctx, mgr, trainingjob.Options{Concurrency: o.concurrency, Reported: reported})
	if err != nil {
		return fmt.Errorf("set up the TrainingJob controller: %w", err)
	}
	// Runnables start with the leadership: two replicas must not both report the state of the same jobs.
	err = mgr.Add(ctrlmanager.RunnableFunc(func(context.Context) error {
		return errors.Join(
			ctrlmetrics.Registry.Register(metrics.NewTrainingJobStatus(mgr.GetCache(), o.metricsMaxJobs, clock.RealClock{})),
			ctrlmetrics.Registry.Register(metrics.NewSpotZones(mgr.GetCache())),
		)
	}))
	if err != nil {
		return fmt.Errorf("add the collector of job figures: %w", err)
	}
	if err := addSpotControllers(ctx, mgr, o, settings, decider); err != nil {
		return err
	}
	if err := addPlatformControllers(ctx, mgr, o, decider); err != nil {
		return err
	}
	return nil
}
