package main

import (
	"context"
	"testing"
	"time"

	"github.com/operator-framework/api/crds"
	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	operatorsv2 "github.com/operator-framework/api/pkg/operators/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/event"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/controllers/spotinstancejob"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/metrics"
	"github.com/dcnlab/spot-training-operator/internal/training/progress"
	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
)

// api has the operator's CRDs and those of OLM.
var (
	scheme = apiserver.Scheme(apiextensionsv1.AddToScheme, operatorsv1alpha1.AddToScheme, operatorsv2.AddToScheme,
		mlv1.AddToScheme, spotv1alpha1.AddToScheme, aiplatformv1alpha1.AddToScheme)
	api = apiserver.New(apiserver.OwnCRDs, func(env *envtest.Environment) {
		env.CRDs = append(env.CRDs, crds.ClusterServiceVersion(), crds.OperatorCondition())
		// No controller here would remove the finalizer that this plugin gives every claim.
		env.ControlPlane.GetAPIServer().Configure().Append("disable-admission-plugins", "StorageObjectInUseProtection")
	})
)

func TestMain(m *testing.M) { api.Main(m) }

func startAPI(t *testing.T) client.Client {
	t.Helper()
	admin, err := client.New(api.Config(t), client.Options{Scheme: scheme})
	require.NoError(t, err)
	return admin
}

// startOperator runs the operator's controllers for the namespace until the test ends.
func startOperator(t *testing.T, namespace string) {
	t.Helper()
	mgr, err := ctrl.NewManager(api.Config(t), ctrl.Options{
		Scheme: scheme,
		Cache: cache.Options{
			ByObject: trainingjob.CachedObjects(), DefaultTransform: cache.TransformStripManagedFields(),
			DefaultNamespaces: map[string]cache.Config{namespace: {}},
		},
		Client:     client.Options{Cache: &client.CacheOptions{EnableReadYourWritesConsistency: ptr.To(true)}},
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	scraper := progress.NewScraper(progress.ScraperOptions{Interval: time.Second, Changed: func(types.NamespacedName) {}})
	require.NoError(t, mgr.Add(scraper))
	reconciler := &trainingjob.Reconciler{
		Client: mgr.GetClient(), Direct: mgr.GetAPIReader(), Clock: clock.RealClock{},
		Recorder: mgr.GetEventRecorder("spot-training-operator"), Progress: scraper,
		Metrics:  metrics.NewTrainingJobs(prometheus.NewRegistry(), 10),
		Settings: build.Settings{WorkerImage: "worker:1", AgentImage: "agent:1"},
	}
	reported := make(chan event.TypedGenericEvent[types.NamespacedName])
	require.NoError(t, reconciler.SetupWithManager(ctx, mgr, trainingjob.Options{Concurrency: 2, Reported: reported}))
	spot := &spotinstancejob.Reconciler{
		Client: mgr.GetClient(), Direct: mgr.GetAPIReader(), Clock: clock.RealClock{},
		Recorder: mgr.GetEventRecorder("spot-training-operator"), Metrics: metrics.NewSpotInstanceJobs(prometheus.NewRegistry()),
	}
	require.NoError(t, spot.SetupWithManager(ctx, mgr, spotinstancejob.Options{Concurrency: 1}))
	startPlatform(ctx, t, mgr)
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
}
