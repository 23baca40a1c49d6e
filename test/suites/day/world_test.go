package day

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/controllers/spotinstancejob"
	"github.com/dcnlab/spot-training-operator/controllers/spotinstancevm"
	"github.com/dcnlab/spot-training-operator/internal/cloud"
	"github.com/dcnlab/spot-training-operator/internal/cloud/gcp"
	"github.com/dcnlab/spot-training-operator/internal/cloud/inventory"
	"github.com/dcnlab/spot-training-operator/internal/metrics"
	"github.com/dcnlab/spot-training-operator/internal/queueing"
	checkpointcrd "github.com/dcnlab/spot-training-operator/test/fakes/checkpointbackup"
	"github.com/dcnlab/spot-training-operator/test/fakes/fakegce"
	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
)

// quiet is how long nothing must have happened before the clock jumps on, in real time.
const quiet = 40 * time.Millisecond

// world is the whole of the simulation.
type world struct {
	t        *testing.T
	clock    *virtual
	start    time.Time
	random   *rand.Rand
	activity activity
	config   *rest.Config
	scheme   *runtime.Scheme
	google   *fakegce.Server
	cluster  *cluster

	queue *queue
	stop  func()
	jumps int // of the clock
	turns int // of the cluster
	// writes are requests to the API server that change something, of all.
	writes atomic.Int64

	mu     sync.Mutex
	errors map[string]int
}

func newWorld(t *testing.T, seed uint64, google fakegce.Options) *world {
	start := time.Now().UTC().Truncate(time.Second)
	w := &world{
		t: t, clock: newVirtual(start), start: start, random: rand.New(rand.NewPCG(seed, 2)), scheme: apiserver.Scheme(spotv1alpha1.AddToScheme, mlv1.AddToScheme),
		errors: map[string]int{},
	}
	shared, seen := &sync.Mutex{}, map[string]string{}
	w.config = apiserver.Start(t, apiserver.OwnCRDs, apiserver.CRDs(checkpointcrd.Folder())).Config(t)
	w.config.ContentType, w.config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	w.config.Wrap(func(base http.RoundTripper) http.RoundTripper {
		return &transport{base: base, world: w, mu: shared, times: seen}
	})
	w.cluster = newCluster(w)
	google.Clock, google.Seed = w.clock, seed
	google.Hooks = fakegce.Hooks{
		OnRunning: w.cluster.instanceRuns, OnPreempted: w.cluster.instanceNoticed, OnGone: w.cluster.instanceGone,
	}
	google.Wrap = func(inner http.Handler) http.Handler {
		return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			defer w.activity.begin()()
			inner.ServeHTTP(rw, r)
		})
	}
	w.google = fakegce.Start(t, google)
	w.cluster.begin()
	return w
}

func (w *world) noteError(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.errors[text]++
}

func (w *world) since() time.Duration { return w.clock.Since(w.start).Round(time.Second) }

// startManager starts a manager with the two controllers, as after a crash of the one before: it knows nothing.
func (w *world) startManager() {
	ctx, cancel := context.WithCancel(context.Background())
	mgr, err := ctrl.NewManager(w.config, ctrl.Options{
		Scheme: w.scheme, Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Controller:              config.Controller{SkipNameValidation: ptr.To(true)},
		GracefulShutdownTimeout: ptr.To(5 * time.Second),
		Client:                  client.Options{Cache: &client.CacheOptions{EnableReadYourWritesConsistency: ptr.To(true)}},
	})
	require.NoError(w.t, err)
	w.queue = newQueue(w)
	sim := simulated{Manager: mgr, world: w, queue: w.queue}
	recorder := &events.FakeRecorder{} // without a channel it drops them
	registry := prometheus.NewRegistry()
	uncached, err := client.New(w.config, client.Options{Scheme: w.scheme})
	require.NoError(w.t, err)
	vms := &spotinstancevm.Reconciler{
		Client: mgr.GetClient(), Direct: mgr.GetAPIReader(), Secrets: uncached, Clock: w.clock, Recorder: recorder,
		Metrics: metrics.NewSpotInstances(registry), Joining: joining{},
		Uses:   func([]string) (map[string]queueing.NodeUse, bool) { return nil, true },
		Queued: func(*mlv1.TrainingJob) []*corev1.Pod { return nil },
		Provide: func(ctx context.Context, account inventory.Account) (cloud.Provider, error) {
			return gcp.New(ctx, gcp.Options{
				Project: account.Project, Credentials: account.Credentials, Endpoint: w.google.URL(), Clock: w.clock,
				Rate: 1e6, Burst: 1e6,
			})
		},
	}
	require.NoError(w.t, vms.SetupWithManager(ctx, sim, spotinstancevm.Options{Concurrency: 4, ListInterval: listInterval}))
	jobs := &spotinstancejob.Reconciler{
		Client: mgr.GetClient(), Direct: mgr.GetAPIReader(), Clock: w.clock, Recorder: recorder,
		Metrics: metrics.NewSpotInstanceJobs(registry),
	}
	require.NoError(w.t, jobs.SetupWithManager(ctx, sim, spotinstancejob.Options{Concurrency: 4}))
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		w.t.Fatal("the caches of the manager do not fill")
	}
	w.stop = func() {
		cancel()
		if err := <-done; err != nil {
			w.noteError("manager: " + err.Error())
		}
	}
}

// run lets the world go on until the end of the day, or until nothing remains to be done.
func (w *world) run(until time.Duration, done func() bool) {
	for w.clock.Since(w.start) < until {
		if deadline, ok := w.t.Deadline(); ok && time.Until(deadline) < 30*time.Second {
			w.t.Fatalf("the test has no more time, %s after the start of the day: %s", w.since(), w.describe())
		}
		w.activity.settle(quiet)
		if w.cluster.sync() {
			w.turns++
			continue
		}
		if done() {
			return
		}
		w.jump(until)
	}
}

// jump to what comes next, by whole seconds: what falls together is done together.
func (w *world) jump(until time.Duration) {
	next := w.start.Add(until)
	// A manager that is still starting has planned nothing yet. Once it runs it lists at intervals.
	if soon := w.clock.Now().Add(listInterval); soon.Before(next) {
		next = soon
	}
	for _, source := range []func() (time.Time, bool){w.clock.next, w.queue.next, w.cluster.next} {
		if at, ok := source(); ok && at.Before(next) {
			next = at
		}
	}
	w.jumps++
	now := w.clock.Now()
	step := max(next.Sub(now), 0).Truncate(time.Second) + time.Second
	w.clock.Step(step)
	now = w.clock.Now()
	w.google.Settle()
	w.cluster.release(now)
	w.queue.release(now)
}

// joining stands in for kubeadm: the machines of this world join by themselves.
type joining struct{}

func (joining) Metadata(_ context.Context, _ *spotv1alpha1.SpotInstanceVM, instance string) (map[string]string, error) {
	return map[string]string{"startup-script": "#!/bin/bash\nkubeadm join --node-name " + instance + "\n"}, nil
}

func (joining) Login(context.Context, *spotv1alpha1.SpotInstanceVM, spotv1alpha1.ProvisionedInstance, cloud.Provider) error {
	return fmt.Errorf("no login is expected here")
}

func (joining) Revoke(context.Context, *spotv1alpha1.SpotInstanceVM, string) error { return nil }
