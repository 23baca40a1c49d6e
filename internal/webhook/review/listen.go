package review

import (
	"context"
	"slices"
)

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
