package trainingjob

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// NewCluster returns a client that the webhooks can ask the API server with: it has no cache, and keeps what the
// server says beside its answers for who asked.
func NewCluster(config *rest.Config, scheme *runtime.Scheme) (client.Client, error) {
	config = rest.CopyConfig(config)
	config.WarningHandler, config.WarningHandlerWithContext = nil, listener{}
	cluster, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("set up the webhooks' client: %w", err)
	}
	return cluster, nil
}

// listener hands the API server's warnings to the listener in the context of the request.
type listener struct{}

type listenerKey struct{}

type heard struct {
	mu       sync.Mutex
	warnings []string
}

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (listener) HandleWarningHeaderWithContext(ctx context.Context, code int, _ string, text string) {
	into, listening := ctx.Value(listenerKey{}).(*heard)
	if !listening || code != 299 || text == "" {
		return
	}
	into.mu.Lock()
	defer into.mu.Unlock()
	if !slices.Contains(into.warnings, text) {
		into.warnings = append(into.warnings, text)
	}
}

// listen returns a context for requests, and what was said to them.
func listen(ctx context.Context) (context.Context, func() []string) {
	into := &heard{}
	return context.WithValue(ctx, listenerKey{}, into), func() []string {
		into.mu.Lock()
		defer into.mu.Unlock()
		return slices.Clone(into.warnings)
	}
}
