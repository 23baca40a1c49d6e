// Package crash counts what a manager writes to the API server, and cuts it off in the middle as if it had crashed.
package crash

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Traffic sees all requests of a manager to the API server. Its methods are safe for concurrent use.
type Traffic struct {
	// Cut is where the manager crashes; nil for never.
	Cut *Cut

	mu     sync.Mutex
	writes []string // method and path, without events
	dead   bool
}

// Cut is where a manager crashes: at the first write that matches, either before it reaches the API server or before its
// answer reaches the manager.
type Cut struct {
	// Method of the write, and the end of its path; empty for any.
	Method, Path string
	// Skip lets so many of these writes pass first.
	Skip int
	// Sent says that the API server gets the write.
	Sent bool
	// Refused says that the manager does not crash: each write that matches is answered by an internal error, until Heal.
	Refused bool
}

func (c *Cut) matches(request *http.Request) bool {
	return (c.Method == "" || request.Method == c.Method) && strings.HasSuffix(request.URL.Path, c.Path)
}

// AtEachWrite runs the life of an object with a manager that crashes at the first of so many writes, once before and once after the API
// server got it; then at the second, and so on.
func AtEachWrite(t *testing.T, writes int, life func(*testing.T, *Cut)) {
	for i := range writes {
		for name, sent := range map[string]bool{"before": false, "after": true} {
			t.Run(fmt.Sprintf("%s write %d", name, i), func(t *testing.T) {
				t.Parallel()
				life(t, &Cut{Skip: i, Sent: sent})
			})
		}
	}
}

var errCrashed = errors.New("the manager has crashed")

// Wrap puts the traffic between a manager and the API server.
func (t *Traffic) Wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		if request.Method == http.MethodGet || strings.Contains(request.URL.Path, "/events") {
			return next.RoundTrip(request)
		}
		if t.refuses(request) {
			return internalError(request), nil
		}
		lose, send := t.write(request)
		if !lose {
			return next.RoundTrip(request)
		}
		if send {
			if answer, err := next.RoundTrip(request); err == nil {
				_ = answer.Body.Close()
			}
		}
		return nil, errCrashed
	})
}

func (t *Traffic) refuses(request *http.Request) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.Cut != nil && t.Cut.Refused && t.Cut.matches(request)
}

// Heal lets all writes pass that were refused.
func (t *Traffic) Heal() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Cut = nil
}

// internalError is the answer of an API server whose webhook does not work.
func internalError(request *http.Request) *http.Response {
	const status = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"InternalError","code":500,"message":"the webhook does not answer"}`
	return &http.Response{
		StatusCode: http.StatusInternalServerError, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(status)), Request: request,
	}
}

func (t *Traffic) write(request *http.Request) (lose, send bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dead {
		return true, false
	}
	if c := t.Cut; c != nil && c.matches(request) {
		if c.Skip == 0 {
			t.dead = true
			return true, c.Sent
		}
		c.Skip--
	}
	t.writes = append(t.writes, request.Method+" "+request.URL.Path)
	return false, false
}

// Crashed says whether the cut was reached.
func (t *Traffic) Crashed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.dead
}

// Written returns the writes so far, each as its method and path.
func (t *Traffic) Written() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.writes)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
