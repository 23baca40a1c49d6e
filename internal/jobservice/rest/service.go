// Package rest is the REST interface of the job service: jobs, queues, clusters and figures for people and programs, and tasks for
// workers. It is written down in openapi.yaml, which the service serves and the tests hold it to.
package rest

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/auth"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

// Base is the path under which everything lies.
const Base = "/api/v1"

// Options of the service.
type Options struct {
	// Store of the jobs.
	Store jobs.Store
	// Authenticator says who sends a request.
	Authenticator *auth.Authenticator
	// Authorizer is asked beside the claims of the token; nil: the claims alone decide.
	Authorizer auth.Authorizer
	// Kubernetes is the cluster; nil: there is none.
	Kubernetes Kubernetes
	// Limits of requests.
	Limits Limits
	// Metrics record every request; nil: none are recorded.
	Metrics RequestMetrics
	// Log gets what goes wrong, and at level 1 every request.
	Log logr.Logger
	// Context ends streams and waiting workers when it is done, so that the server can shut down; nil: never.
	Context context.Context
	// Now is the clock; nil: the real one.
	Now func() time.Time
	// LogInterval is how often the log of a pooled job is read while a client follows it. Default: 1 s.
	LogInterval time.Duration
	// KeepAlive is how often a stream without lines sends a comment and checks whether its job has ended. Default: 15 s.
	KeepAlive time.Duration
}

// RequestMetrics record requests.
type RequestMetrics interface {
	// Request records an answered request. The route is a pattern, for example GET /jobs/{id}.
	Request(route string, status int, duration time.Duration)
	// Limited records a request refused by the rate limit of a class: create, list, tasks or other.
	Limited(class string)
}

// service is what the handlers share.
type service struct {
	Options
	access  *auth.Access
	limiter *limiter
	health  health
	// leases are the queues of tasks that were leased a short time ago, by ID.
	leases  recent
	streams streams

	submissions submissions
}

// Handler of the service.
type Handler struct {
	http.Handler
	service *service
}

// Wait until all entries of the audit log are written, once no request is handled any more.
func (h *Handler) Wait() { h.service.submissions.writers.Wait() }

// New returns the handler of the service.
func New(options Options) *Handler {
	if options.Now == nil {
		options.Now = time.Now
	}
	if options.Context == nil {
		options.Context = context.Background()
	}
	if options.LogInterval == 0 {
		options.LogInterval = time.Second
	}
	if options.KeepAlive == 0 {
		options.KeepAlive = 15 * time.Second
	}
	s := &service{
		Options: options,
		access:  auth.NewAccess(options.Authorizer, options.Now),
		limiter: newLimiter(options.Limits),
	}
	mux := http.NewServeMux()
	for _, r := range s.resources() {
		path := Base + strings.TrimSuffix(r.path, "/")
		// With and without the slash, because clients lose the body or the token when they follow a redirect.
		mux.Handle(path, r)
		mux.Handle(path+"/{$}", r)
	}
	missing := &endpoint{service: s, path: "(none)"}
	mux.Handle("/", missing)
	return &Handler{service: s, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The mux redirects a path that is not clean, which no client of this service expects.
		if p := r.URL.Path; strings.Contains(p, "//") || strings.Contains(p, "/.") || r.Method == http.MethodConnect {
			missing.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})}
}

// resources of the service. TestDocument holds them to openapi.yaml.
func (s *service) resources() []*endpoint {
	read, write, work := auth.ScopeRead, auth.ScopeWrite, auth.ScopeWork
	all := []*endpoint{
		{path: "/jobs/", routes: []route{
			{method: http.MethodGet, scope: read, class: classList, handle: s.listJobs},
			{method: http.MethodPost, scope: write, class: classCreate, handle: s.createJob},
		}},
		{path: "/jobs/batch", routes: []route{{method: http.MethodPost, scope: write, class: classCreate, handle: s.createJobs}}},
		{path: "/jobs/{id}", routes: []route{
			{method: http.MethodGet, scope: read, handle: s.getJob},
			{method: http.MethodDelete, scope: write, handle: s.cancelJob},
		}},
		{path: "/jobs/{id}/requeue", routes: []route{{method: http.MethodPost, scope: write, handle: s.requeueJob}}},
		{path: "/jobs/{id}/logs", routes: []route{{method: http.MethodGet, scope: read, handle: s.jobLogs, streams: true}}},
		{path: "/queues/", routes: []route{{method: http.MethodGet, scope: read, handle: s.listQueues}}},
		{path: "/queues/{name}", routes: []route{{method: http.MethodGet, scope: read, handle: s.getQueue}}},
		{path: "/clusters/", routes: []route{{method: http.MethodGet, scope: read, handle: s.listClusters}}},
		{path: "/clusters/{name}", routes: []route{{method: http.MethodGet, scope: read, handle: s.getCluster}}},
		{path: "/workflows/{namespace}/{name}", routes: []route{{method: http.MethodGet, scope: read, handle: s.getWorkflow}}},
		{path: "/metrics/", routes: []route{{method: http.MethodGet, scope: read, handle: s.getMetrics}}},
		{path: "/tasks/lease", routes: []route{
			{method: http.MethodPost, scope: work, class: classTasks, handle: s.leaseTasks, streams: true},
		}},
		{path: "/tasks/{id}/heartbeat", routes: []route{{method: http.MethodPost, scope: work, class: classTasks, handle: s.heartbeat}}},
		{path: "/tasks/{id}/complete", routes: []route{{method: http.MethodPost, scope: work, class: classTasks, handle: s.completeTask}}},
		{path: "/tasks/{id}/fail", routes: []route{{method: http.MethodPost, scope: work, class: classTasks, handle: s.failTask}}},
		{path: "/health/live", routes: []route{{method: http.MethodGet, open: true, handle: s.live}}},
		{path: "/health/ready", routes: []route{{method: http.MethodGet, open: true, handle: s.ready}}},
		{path: "/openapi.json", routes: []route{{method: http.MethodGet, open: true, handle: s.openAPI}}},
		{path: "/docs", routes: []route{{method: http.MethodGet, open: true, handle: s.docs}}},
	}
	for _, r := range all {
		r.service = s
		for i := range r.routes {
			r.routes[i].name = r.routes[i].method + " " + r.path
		}
	}
	return all
}

// Server returns a server for the handler, with limits on how long a client may take. It speaks HTTP/1.1, and HTTP/2 over TLS.
func Server(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       60 * time.Second,
		WriteTimeout:      90 * time.Second,
		IdleTimeout:       120 * time.Second,
		MaxHeaderBytes:    64 << 10,
	}
}
