package fakegce

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/utils/clock"
)

// Options of a Server. The zero value is a project test-project with everything in stock, in which all happens at once.
type Options struct {
	// Project that exists. Default test-project.
	Project string
	// Clock that drives instances and operations. Default the real one. Access tokens go by the real one always.
	Clock clock.Clock
	// Seed of all that is random: ids, jitter and preemptions.
	Seed uint64
	// Latency of everything. Default none.
	Latency Latency
	// Zones that exist. Default DefaultZones.
	Zones []string
	// PreemptionsPerHour is how often a running spot instance is taken back by chance. Default never.
	PreemptionsPerHour float64
	// Address gives an instance its internal and external address, for tests that really connect to it.
	Address func(name string) (internal, external string)
	// Hooks are called when instances change.
	Hooks Hooks
	// Wrap puts something around the handler of requests, for tests that watch them come and go.
	Wrap func(http.Handler) http.Handler
	// Listen is the address to listen on. Default 127.0.0.1:0.
	Listen string
	// URL by which clients reach it, where something is in front of it that Wrap hands the handler to. Default its address.
	URL string
	// AllowViolations leaves it to the test to look at Violations.
	AllowViolations bool
}

// Server is a fake Compute Engine.
type Server struct {
	opts   Options
	doc    *document
	clock  clock.Clock
	http   *http.Server
	url    string
	random *rand.Rand

	closed  chan struct{}
	wake    chan struct{}
	running sync.WaitGroup

	mu         sync.Mutex
	told       <-chan struct{} // is closed when all hooks so far have returned
	ended      bool
	queue      []event
	violations []string
	requests   []Request

	instances  map[key]*instance
	history    []*instance
	operations map[key]*operation
	requestIDs map[string]*accepted
	numbers    uint64
	addresses  uint32

	faults []*Fault
	stock  []*Stock
	quotas map[quotaKey]float64
	denied map[string]bool
	images map[string]bool

	tokens map[string]time.Time
}

// key of what lives in a zone.
type key struct{ zone, name string }

// New starts a server; Close ends it.
func New(opts Options) (*Server, error) {
	doc, err := loadDocument()
	if err != nil {
		return nil, err
	}
	opts.Project = cmp.Or(opts.Project, "test-project")
	opts.Clock = cmp.Or[clock.Clock](opts.Clock, clock.RealClock{})
	if len(opts.Zones) == 0 {
		opts.Zones = DefaultZones
	}
	listener, err := net.Listen("tcp", cmp.Or(opts.Listen, "127.0.0.1:0"))
	if err != nil {
		return nil, err
	}
	none := make(chan struct{})
	close(none)
	s := &Server{
		opts: opts, doc: doc, clock: opts.Clock, url: cmp.Or(opts.URL, "http://"+listener.Addr().String()),
		random: rand.New(rand.NewPCG(opts.Seed, 1)),
		closed: make(chan struct{}), wake: make(chan struct{}, 1), told: none,
		instances: map[key]*instance{}, operations: map[key]*operation{}, requestIDs: map[string]*accepted{},
		numbers: 1_000_000_000_000_000_000 + opts.Seed, quotas: map[quotaKey]float64{}, denied: map[string]bool{},
		images: map[string]bool{}, tokens: map[string]time.Time{},
	}
	s.http = &http.Server{Handler: s.routes(), ReadHeaderTimeout: 30 * time.Second}
	if opts.Wrap != nil {
		s.http.Handler = opts.Wrap(s.http.Handler)
	}
	s.running.Go(func() { _ = s.http.Serve(listener) })
	s.running.Go(s.run)
	return s, nil
}

// Start starts a server for a test, ends it with the test, and fails the test for each violation.
func Start(t testing.TB, opts Options) *Server {
	t.Helper()
	s, err := New(opts)
	if err != nil {
		t.Fatalf("start the fake Compute Engine: %v", err)
	}
	t.Cleanup(func() {
		s.Close()
		for _, violation := range s.Violations() {
			if !opts.AllowViolations {
				t.Errorf("request that Compute Engine does not understand: %s", violation)
			}
		}
	})
	return s
}

// Close ends the server and cuts its connections.
func (s *Server) Close() {
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return
	}
	s.ended = true
	for _, instance := range s.instances {
		instance.notify()
	}
	s.mu.Unlock()
	close(s.closed)
	_ = s.http.Close()
	s.running.Wait()
}

// URL of the server, without a path: the endpoint for a client.
func (s *Server) URL() string { return s.url }

// Project that exists.
func (s *Server) Project() string { return s.opts.Project }

// enter locks the server and does what is due before anything else.
func (s *Server) enter() (leave func()) {
	s.mu.Lock()
	s.advance()
	return s.mu.Unlock
}

// Violations are the requests that do not fit the discovery document, or that the server does not know.
func (s *Server) Violations() []string {
	defer s.enter()()
	return slices.Clone(s.violations)
}

func (s *Server) violate(format string, args ...any) {
	defer s.enter()()
	s.violations = append(s.violations, fmt.Sprintf(format, args...))
}

// Request is one that the server got.
type Request struct {
	Time time.Time
	// Method in the words of the discovery document, for example compute.instances.insert.
	Method string
	Zone   string
	// Name of the instance or operation that it is about, if it is about one.
	Name string
	// RequestID makes it idempotent.
	RequestID string
	// Status of the answer; 0 when the answer was lost.
	Status int
}

// Requests are all that the server got, in order.
func (s *Server) Requests() []Request {
	defer s.enter()()
	return slices.Clone(s.requests)
}

// Calls counts the requests of a method in a zone; empty strings stand for all methods and all zones.
func (s *Server) Calls(method, zone string) int {
	defer s.enter()()
	count := 0
	for i := range s.requests {
		if (method == "" || s.requests[i].Method == method) && (zone == "" || s.requests[i].Zone == zone) {
			count++
		}
	}
	return count
}

// ForgetCalls sets the counters to zero.
func (s *Server) ForgetCalls() {
	defer s.enter()()
	s.requests = nil
}

// nextID is a number that no other thing of the server has; s.mu is held.
func (s *Server) nextID() uint64 {
	s.numbers += 1 + s.random.Uint64N(1000)
	return s.numbers
}
