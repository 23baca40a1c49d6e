package agentworkflow

import (
	"errors"
	"net/http"
	"strings"
	"sync"
)

// traffic sees all requests of a manager to the API server, and can cut the manager off as if it had crashed.
type traffic struct {
	mu     sync.Mutex
	writes []string // method and path, without events
	cut    *cut
	dead   bool
}

// cut is where a manager crashes: at the write of this number, either before it reaches the API server or before its
// answer reaches the manager.
type cut struct {
	write int
	sent  bool
}

var errCrashed = errors.New("the manager has crashed")

// wrap puts the traffic between a manager and the API server.
func (t *traffic) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		if request.Method == http.MethodGet || strings.Contains(request.URL.Path, "/events") {
			return next.RoundTrip(request)
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

func (t *traffic) write(request *http.Request) (lose, send bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dead {
		return true, false
	}
	if t.cut != nil && len(t.writes) == t.cut.write {
		t.dead = true
		return true, t.cut.sent
	}
	t.writes = append(t.writes, request.Method+" "+request.URL.Path)
	return false, false
}

// crashed says whether the cut was reached.
func (t *traffic) crashed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.dead
}

// written returns the writes so far.
func (t *traffic) written() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string(nil), t.writes...)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
