package runner

import (
	"io"
	"net/http"
	"strings"
	"sync"
)

// outage stands between a client and the API server, and refuses what is to change something; or all.
type outage struct {
	all    bool
	mu     sync.Mutex
	status int
	count  int
}

func (o *outage) set(status int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.status, o.count = status, 0
}

func (o *outage) refused() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.count
}

func (o *outage) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		o.mu.Lock()
		status := o.status
		if status != 0 && (o.all || request.Method != http.MethodGet) {
			o.count++
			o.mu.Unlock()
			return &http.Response{
				StatusCode: status, Status: http.StatusText(status), Request: request, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("")),
			}, nil
		}
		o.mu.Unlock()
		return next.RoundTrip(request)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
