// Package managers runs managers for tests, set up like the operator's own.
package managers

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// patience bounds the wait for the end of a manager.
const patience = 3 * time.Minute

// Manager is one that controllers are added to, and that Run then starts.
type Manager struct {
	ctrl.Manager
	// Context ends when the manager is stopped.
	Context context.Context

	t      testing.TB
	cancel context.CancelFunc
}

// New returns a manager whose requests to the API server pass through the wrappers.
func New(t testing.TB, api *rest.Config, scheme *runtime.Scheme, of cache.Options, wrap ...transport.WrapperFunc) *Manager {
	t.Helper()
	return NewLogging(t, logr.Discard(), api, scheme, of, wrap...)
}

// NewLogging is New of a manager whose controllers log to a logger.
func NewLogging(t testing.TB, log logr.Logger, api *rest.Config, scheme *runtime.Scheme, of cache.Options, wrap ...transport.WrapperFunc) *Manager {
	t.Helper()
	api = rest.CopyConfig(api)
	for _, one := range wrap {
		api.Wrap(one)
	}
	of.DefaultTransform = cache.TransformStripManagedFields()
	mgr, err := ctrl.NewManager(api, ctrl.Options{
		Scheme: scheme, Cache: of, Logger: log,
		Client:     client.Options{Cache: &client.CacheOptions{EnableReadYourWritesConsistency: ptr.To(true)}},
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)}, // several run in one process
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	return &Manager{Manager: mgr, Context: ctx, t: t, cancel: cancel}
}

// Run starts the manager, which ends with the test, or by the function that is returned.
func (m *Manager) Run() (stop func()) {
	ended := make(chan error, 1)
	go func() { ended <- m.Start(m.Context) }()
	stop = sync.OnceFunc(func() {
		m.cancel()
		select {
		case err := <-ended:
			assert.NoError(m.t, err)
		case <-time.After(patience):
			assert.Fail(m.t, "the manager does not stop")
		}
	})
	m.t.Cleanup(stop)
	return stop
}
