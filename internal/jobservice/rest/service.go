// Package rest is the REST interface of the job service: jobs, queues, clusters and figures for people and programs, and tasks for
// workers. It is written down in openapi.yaml, which the service serves and the tests hold it to.
package rest

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/lru"

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
	// MaxOpenJobs of a namespace that have not ended; 0: any number.
	MaxOpenJobs int
	// MaxOpenJobsPerUser that have not ended, in all namespaces; 0: any number.
	MaxOpenJobsPerUser int
	// RefuseJobs is why no job is accepted, with the remedy; empty: jobs are accepted.
	RefuseJobs string
	// TrustedProxies are the addresses of proxies whose header X-Forwarded-For says where a request comes from.
	TrustedProxies []net.IPNet
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
	// Limited records a request refused by the rate limit of a class: create, jobs, list, tasks or other.
	Limited(class string)
}

// maxLeases that are remembered.
const maxLeases = 1 << 17

// service is what the handlers share.
type service struct {
	Options
	access  *auth.Access
	limiter *limiter
	open    *openJobs
	health  health
	// leases are the queues of tasks that were leased a short time ago, by ID.
	leases  *lru.Cache
	streams streams

	gathering gathering
}

// Handler of the service.
type Handler struct {
	http.Handler
	service *service
}

// Wait until all entries of the audit log are written, once no request is handled any more.
func (h *Handler) Wait() { h.service.gathering.writers.Wait() }

// New returns the handler of the service.
func New(options Options) *Handler {
	if options.Now == nil {
		options.Now = time.Now
	}
	options.Context = cmp.Or(options.Context, context.Background())
	options.LogInterval = cmp.Or(options.LogInterval, time.Second)
	options.KeepAlive = cmp.Or(options.KeepAlive, 15*time.Second)
	s := &service{
		Options: options,
		access:  auth.NewAccess(options.Authorizer, options.Now),
		limiter: newLimiter(options.Limits),
		open:    newOpenJobs(&options),
		leases:  lru.New(maxLeases),
		streams: streams{open: map[string]int{}},

		gathering: gathering{pending: map[auditKey]*gathered{}},
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

// What is said where nothing is found.
const (
	noJob      = "job not found, or the token does not cover its namespace"
	noTask     = "task not found, or the token does not cover its queue"
	noQueue    = "queue not found: GET " + Base + "/queues/ lists all"
	noCluster  = "ComputeCluster not found: GET " + Base + "/clusters/ lists all"
	noWorkflow = "AgentWorkflow not found, or the token does not cover its namespace"
)

// resources of the service. TestDocument holds them to openapi.yaml.
func (s *service) resources() []*endpoint {
	open := func(handle handler) []route { return []route{{method: http.MethodGet, handle: handle}} }
	read := func(resource string, handle handler) route {
		return route{method: http.MethodGet, scope: auth.ScopeRead, resource: resource, noQuery: true, handle: handle}
	}
	write := func(method string, handle handler) route {
		return route{method: method, scope: auth.ScopeWrite, noQuery: true, handle: handle}
	}
	create := func(handle handler) route {
		return route{method: http.MethodPost, scope: auth.ScopeWrite, class: classCreate, accepts: true, handle: handle}
	}
	requeue := write(http.MethodPost, s.requeueJob)
	requeue.accepts = true
	work := func(streams bool, handle handler) []route {
		return []route{{method: http.MethodPost, scope: auth.ScopeWork, class: classTasks, streams: streams, handle: handle}}
	}
	list := route{method: http.MethodGet, scope: auth.ScopeRead, class: classList, handle: s.listJobs}
	logs := route{method: http.MethodGet, scope: auth.ScopeRead, streams: true, handle: s.jobLogs}
	all := []*endpoint{
		{path: "/jobs/", routes: []route{list, create(s.createJob)}},
		{path: "/jobs/batch", routes: []route{create(s.createJobs)}},
		{path: "/jobs/{id}", missing: noJob, routes: []route{read("", s.getJob), write(http.MethodDelete, s.cancelJob)}},
		{path: "/jobs/{id}/requeue", missing: noJob, routes: []route{requeue}},
		{path: "/jobs/{id}/logs", missing: noJob, routes: []route{logs}},
		{path: "/queues/", routes: []route{read(auth.Queues, s.listQueues)}},
		{path: "/queues/{name}", missing: noQueue, routes: []route{read(auth.Queues, s.getQueue)}},
		{path: "/clusters/", routes: []route{read(auth.Clusters, s.listClusters)}},
		{path: "/clusters/{name}", missing: noCluster, routes: []route{read(auth.Clusters, s.getCluster)}},
		{path: "/workflows/{namespace}/{name}", missing: noWorkflow, routes: []route{read("", s.getWorkflow)}},
		{path: "/metrics/", routes: []route{read("", s.getMetrics)}},
		{path: "/tasks/lease", routes: work(true, s.leaseTasks)},
		{path: "/tasks/{id}/heartbeat", missing: noTask, routes: work(false, s.heartbeat)},
		{path: "/tasks/{id}/complete", missing: noTask, routes: work(false, s.completeTask)},
		{path: "/tasks/{id}/fail", missing: noTask, routes: work(false, s.failTask)},
		{path: "/health/live", routes: open(s.live)},
		{path: "/health/ready", routes: open(s.ready)},
		{path: "/openapi.json", routes: open(s.openAPI)},
		{path: "/docs", routes: open(s.docs)},
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
