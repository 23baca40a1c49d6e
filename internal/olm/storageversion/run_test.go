package storageversion

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/dcnlab/spot-training-operator/internal/metrics"
)

// run is a migrator that runs in a manager.
type run struct {
	*traffic

	t        *testing.T
	progress *Progress
	registry *prometheus.Registry
	events   chan string
	// cancel ends the manager's context; stop also waits for its end.
	cancel, stop func()
}

// start runs a migrator for the kind, quicker than the real one. All its requests go through the traffic.
func (k *kind) start(traffic *traffic, changes ...func(*Options)) *run {
	k.t.Helper()
	config := api.Config(k.t)
	config.Wrap(traffic.wrap)
	direct, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(k.t, err)
	objects, err := metadata.NewForConfig(config)
	require.NoError(k.t, err)
	recorder := events.NewFakeRecorder(100)
	r := &run{traffic: traffic, t: k.t, progress: NewProgress([]string{k.crd}), registry: prometheus.NewRegistry(), events: recorder.Events}
	options := Options{
		CRDs: []string{k.crd}, Client: direct, Metadata: objects, Recorder: recorder,
		Metrics: metrics.NewStorageMigrations(r.registry), Progress: r.progress,
		QPS: 1000, Settle: time.Second, PageSize: 7, Retry: 100 * time.Millisecond, RetryLimit: 200 * time.Millisecond,
	}
	for _, change := range changes {
		change(&options)
	}
	mgr, err := ctrl.NewManager(api.Config(k.t), ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}, Controller: configSkippingNames,
	})
	require.NoError(k.t, err)
	require.NoError(k.t, New(options).SetupWithManager(mgr))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	r.cancel = cancel
	r.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			require.NoError(k.t, err)
		case <-time.After(patience):
			require.FailNow(k.t, "the manager does not stop")
		}
	})
	k.t.Cleanup(r.stop)
	return r
}

// Several managers run in one process.
var configSkippingNames = config.Controller{SkipNameValidation: ptr.To(true)}

// awaitUpgradeable waits until the migrator says whether the operator may be upgraded, and returns the message.
func (r *run) awaitUpgradeable(want bool) string {
	r.t.Helper()
	var message string
	require.Eventually(r.t, func() bool {
		verdict, known := r.progress.Verdict()
		message = verdict.Message
		return known && verdict.Upgradeable == want
	}, patience, 20*time.Millisecond, "upgradeable should become %v", want)
	return message
}

// metric returns the value of a metric of the kind.
func (r *run) metric(k *kind, name string) float64 {
	r.t.Helper()
	families, err := r.registry.Gather()
	require.NoError(r.t, err)
	for _, family := range families {
		for _, metric := range family.Metric {
			if family.GetName() == name && metric.Label[0].GetValue() == k.crd {
				return metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
			}
		}
	}
	return 0
}

// traffic sees all requests of a migrator.
type traffic struct {
	// before is called with every request before it is sent, for example to change something meanwhile.
	before func(*http.Request)

	mu       sync.Mutex
	requests []request
}

type request struct {
	method, path string
	watch        bool
	at           time.Time
}

func (t *traffic) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if t.before != nil {
			t.before(r)
		}
		t.mu.Lock()
		t.requests = append(t.requests, request{r.Method, r.URL.Path, r.URL.Query().Has("watch"), time.Now()})
		t.mu.Unlock()
		return next.RoundTrip(r)
	})
}

// made returns the requests with a method whose path contains a part, without watches.
func (t *traffic) made(method, part string) []request {
	t.mu.Lock()
	defer t.mu.Unlock()
	var made []request
	for _, r := range t.requests {
		if !r.watch && r.method == method && strings.Contains(r.path, part) {
			made = append(made, r)
		}
	}
	return made
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// nth returns a hook that calls do before the nth request, from 1, with the method and a path that ends so.
func nth(n int, method, end string, do func(*http.Request)) func(*http.Request) {
	var mu sync.Mutex
	seen := 0
	return func(r *http.Request) {
		if r.Method != method || !strings.HasSuffix(r.URL.Path, end) {
			return
		}
		mu.Lock()
		seen++
		hit := seen == n
		mu.Unlock()
		if hit {
			do(r)
		}
	}
}
