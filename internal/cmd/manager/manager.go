// Package manager is the subcommand that runs the operator's controllers.
package manager

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"os"
	"time"

	operatorsv2 "github.com/operator-framework/api/pkg/operators/v2"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/controllers/certificaterequest"
	"github.com/dcnlab/spot-training-operator/controllers/nodeagent"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/controllers/workerpool"
	"github.com/dcnlab/spot-training-operator/internal/accessreview"
	"github.com/dcnlab/spot-training-operator/internal/cmd/logging"
	"github.com/dcnlab/spot-training-operator/internal/cmd/memory"
	"github.com/dcnlab/spot-training-operator/internal/nodenotice"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
	"github.com/dcnlab/spot-training-operator/internal/tracing"
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
	logLevel         string
	settings         build.Settings
	webhooks         webhookOptions
	controllers      controllerOptions
	jobService       jobServiceOptions
	namespaces       namespaces
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
		RunE:  func(command *cobra.Command, _ []string) error { return run(command.Context(), o) },
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
		"objects rewritten per second when the storage version of their kind has changed")
	flags.StringVar(&o.settings.WorkerImage, "training-worker-image", cmp.Or(os.Getenv(workerImageVariable), "spot-training-operator-worker:latest"),
		"image of workers whose job names none (environment: "+workerImageVariable+")")
	flags.BoolVar(&o.settings.IsolateJobs, "isolate-jobs", true,
		"give each job whose spec.networking.isolation is not set a NetworkPolicy that closes its pods to the pods of others; "+
			"with false only Ray jobs get one")
	flags.BoolVar(&o.settings.RequireQueue, "require-queue", false,
		"start no AIJob or TrainingJob that names no queue; those that run go on")
	o.settings.DefaultResources.AddFlags(flags)
	flags.StringVar(&o.settings.AgentImage, "agent-image", cmp.Or(os.Getenv(agentImageVariable), "spot-training-operator:latest"),
		"image of the checkpoint agent in the workers' pods: the manager's own (environment: "+agentImageVariable+")")
	flags.StringVar(&o.settings.TensorBoardImage, "tensorboard-image", cmp.Or(os.Getenv(tensorBoardImageVariable), "tensorflow/tensorflow:2.19.0"),
		"image of TensorBoard beside jobs that ask for it and name none: any with the commands tensorboard and sh (environment: "+
			tensorBoardImageVariable+")")
	flags.StringVar(&o.logLevel, "log-level", cmp.Or(os.Getenv("LOG_LEVEL"), "info"), "debug, info, warn or error (environment: LOG_LEVEL)")
	o.namespaces.addFlags(flags)
	o.webhooks.addFlags(flags)
	o.controllers.addFlags(flags)
	o.jobService.addFlags(flags)
	return command
}

func run(ctx context.Context, o options) error {
	if _, err := logging.Start(o.logLevel); err != nil {
		return err
	}
	// Most of the memory is the cache, which lives long: with Go's usual 100 nearly as much again would be garbage. At 1,000 jobs the manager
	// stays under 120 MB so, for a few percent more processor time.
	memory.Limit(70, 0)
	stopTracing, err := tracing.Start(ctx, "spot-training-operator", ctrl.Log)
	if err != nil {
		return err
	}
	defer stopTracing()
	if o.migrationQPS <= 0 {
		return fmt.Errorf("--storage-migration-qps: %g is not above 0: name the number of objects to write per second", o.migrationQPS)
	}
	if err := errors.Join(o.settings.DefaultResources.Validate(), o.controllers.validate(), o.jobService.validate(o.webhooks.namespace), o.namespaces.validate(o)); err != nil {
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

	o.settings.Namespace = o.webhooks.namespace
	hooks, err := newWebhooks(o.webhooks, o.settings, config, scheme)
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
	recorder, err := reporting.NewRecorder(ctx, mgr, "spot-training-operator")
	if err != nil {
		return err
	}
	if err := addControllers(ctx, mgr, o, recorder); err != nil {
		return err
	}
	if err := hooks.addTo(mgr); err != nil {
		return err
	}
	if o.namespaces.areAll() { // stored objects are those of all namespaces
		if err := addStorageMigration(mgr, o, recorder); err != nil {
			return err
		}
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

// cacheOptions say what of each kind is kept in the manager's cache.
func cacheOptions(o options) cache.Options {
	objects := trainingjob.CachedObjects()
	objects[&corev1.Node{}] = cache.ByObject{Transform: nodenotice.Trim}
	if o.namespaces.areAll() {
		maps.Copy(objects, certificaterequest.CachedObjects())
		maps.Copy(objects, nodeagent.CachedObjects(o.webhooks.namespace))
		maps.Copy(objects, workerpool.CachedObjects())
	}
	return cache.Options{
		SyncPeriod: &o.resync, DefaultTransform: cache.TransformStripManagedFields(), DefaultNamespaces: o.namespaces.caches(), ByObject: objects,
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
