// Package gcp provides instances of Google Compute Engine.
package gcp

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/api/compute/v1"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/option"
	"k8s.io/utils/clock"

	"github.com/dcnlab/spot-training-operator/internal/cloud"
)

// Options of a Provider.
type Options struct {
	// Project that holds the instances.
	Project string
	// Credentials are a service account key in the JSON that Google gives out. Empty for the workload identity of the
	// process, or what else Google's application default credentials find.
	Credentials []byte
	// Endpoint of the API, for example http://127.0.0.1:8080. Default Google's.
	Endpoint string
	// UserAgent by which Google's logs name the caller.
	UserAgent string
	// Rate is the number of requests a second, and Burst how many may go at once. Default 10 and 20, about half of what
	// Google allows a project.
	Rate  rate.Limit
	Burst int
	// Clock for pauses. Default the real one.
	Clock clock.PassiveClock
}

const (
	defaultRate  = rate.Limit(10)
	defaultBurst = 20
	// callTimeout is how long an answer may take.
	callTimeout = 30 * time.Second
	// longestWait is how long a call waits for its turn; when it would have to wait longer it is refused, so that the
	// worker can do something else.
	longestWait = time.Second
	// defaultPause after an answer that there were too many requests and that does not say how long to wait.
	defaultPause = 5 * time.Second
)

// Provider is a project of Google Cloud.
type Provider struct {
	project string
	service *compute.Service
	limiter *rate.Limiter
	clock   clock.PassiveClock

	mu     sync.Mutex
	paused time.Time
	// shapes that were read, by zone and machine type.
	shapes sync.Map
}

var _ cloud.Provider = (*Provider)(nil)

// New makes a Provider. It asks nothing of Google yet, except that credentials of the environment may be looked for at
// the metadata server: whether the credentials are accepted shows with the first call. Credentials that cannot be used
// are an Error of class Permission.
func New(ctx context.Context, opts Options) (*Provider, error) {
	newSource, err := newTokenSource(ctx, opts)
	if err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = defaultBurst // one for each call of a burst, since opening a connection takes longer than a call
	client := &http.Client{Transport: &authTransport{base: transport, newSource: newSource}, Timeout: callTimeout}
	with := []option.ClientOption{option.WithHTTPClient(client)}
	if opts.Endpoint != "" {
		endpoint, err := apiEndpoint(opts.Endpoint)
		if err != nil {
			return nil, err
		}
		with = append(with, option.WithEndpoint(endpoint))
	}
	service, err := compute.NewService(ctx, with...)
	if err != nil {
		return nil, &cloud.Error{Class: cloud.Invalid, Code: "Endpoint", Message: err.Error(), Err: err}
	}
	service.UserAgent = opts.UserAgent
	return &Provider{
		project: opts.Project, service: service,
		limiter: rate.NewLimiter(cmp.Or(opts.Rate, defaultRate), cmp.Or(opts.Burst, defaultBurst)),
		clock:   cmp.Or[clock.PassiveClock](opts.Clock, clock.RealClock{}),
	}, nil
}

// apiEndpoint adds the path of the API to an address without one.
func apiEndpoint(endpoint string) (string, error) {
	parsed, err := url.Parse(endpoint)
	if err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Host == "" {
		return "", &cloud.Error{
			Class: cloud.Invalid, Code: "Endpoint", Err: err,
			Message: "endpoint " + endpoint + " is no URL: write for example https://compute.googleapis.com",
		}
	}
	if parsed.Path == "" || parsed.Path == "/" {
		parsed.Path = "/compute/v1/"
	}
	return parsed.String(), nil
}

// turn waits until a call may be made, for at most longestWait.
func (p *Provider) turn(ctx context.Context) error {
	p.mu.Lock()
	pause := p.paused.Sub(p.clock.Now())
	p.mu.Unlock()
	if pause > 0 {
		return &cloud.Error{
			Class: cloud.RateLimited, Code: "Paused", RetryAfter: pause,
			Message: "Compute Engine asked for a pause after too many requests",
		}
	}
	reservation := p.limiter.Reserve()
	wait := reservation.Delay()
	if wait > longestWait {
		reservation.Cancel()
		return &cloud.Error{
			Class: cloud.RateLimited, Code: "ClientRate", RetryAfter: wait,
			Message: "too many requests to Compute Engine at once; they are spread over time",
		}
	}
	if wait == 0 {
		return nil
	}
	select {
	case <-time.After(wait):
		return nil
	case <-ctx.Done():
		reservation.Cancel()
		return &cloud.Error{Class: cloud.Transient, Message: "the call was given up before it was made", Err: ctx.Err()}
	}
}

// ask makes one call of the API and classifies its error.
func ask[T any](ctx context.Context, p *Provider, what question, call func(...googleapi.CallOption) (T, error)) (answer T, err error) {
	if err := p.turn(ctx); err != nil {
		return answer, err
	}
	if answer, err = call(); err == nil {
		return answer, nil
	}
	classified := classify(what, err)
	if classified.Class == cloud.RateLimited {
		classified.RetryAfter = cmp.Or(classified.RetryAfter, defaultPause)
		p.mu.Lock()
		p.paused = p.clock.Now().Add(classified.RetryAfter)
		p.mu.Unlock()
	}
	return answer, classified
}
