package review

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// NewClient returns a client that the webhooks can ask the API server with: it has no cache, and keeps what the
// server says beside its answers for who asked.
func NewClient(config *rest.Config, scheme *runtime.Scheme) (client.Client, error) {
	config = rest.CopyConfig(config)
	config.WarningHandler, config.WarningHandlerWithContext = nil, listener{}
	asking, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("set up the webhooks' client: %w", err)
	}
	return asking, nil
}

// listener hands the API server's warnings to the listener in the context of the request.
type listener struct{}

type listenerKey struct{}

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (listener) HandleWarningHeaderWithContext(ctx context.Context, code int, _ string, text string) {
	said, listening := ctx.Value(listenerKey{}).(*[]string)
	if listening && code == 299 && text != "" && !slices.Contains(*said, text) {
		*said = append(*said, text)
	}
}

// listen returns a context for one request, which puts into said what the API server says to it.
func listen(ctx context.Context, said *[]string) context.Context {
	return context.WithValue(ctx, listenerKey{}, said)
}
