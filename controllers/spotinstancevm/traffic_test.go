package spotinstancevm

import (
	"context"
	"errors"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dcnlab/spot-training-operator/internal/cloud"
)

// fuse counts what a manager does to the world: requests to the provider but for lists, and writes to the API server but
// for events. It can cut the manager off after any of them, as if it had crashed: what was done is done, the answer is
// lost, and nothing more gets through.
type fuse struct {
	mu    sync.Mutex
	at    int // cuts after so many; 0 for never
	steps []string
	lists []string // kinds that were cached
	dead  bool
	blown chan struct{}
}

func newFuse(at int) *fuse { return &fuse{at: at, blown: make(chan struct{})} }

var errCrashed = errors.New("the manager has crashed")

// alive says whether anything still gets through.
func (f *fuse) alive() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.dead
}

// step counts something that was done, and says whether its answer gets through.
func (f *fuse) step(what string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead {
		return false
	}
	f.steps = append(f.steps, what)
	if len(f.steps) == f.at {
		f.dead = true
		close(f.blown)
	}
	return !f.dead
}

// listed notes that a kind is listed or watched.
func (f *fuse) listed(request *http.Request) {
	if !request.URL.Query().Has("watch") {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lists = append(f.lists, path.Base(request.URL.Path))
}

// cached are the kinds that were cached.
func (f *fuse) cached() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Compact(slices.Sorted(slices.Values(f.lists)))
}

// disarm has it never cut the manager off.
func (f *fuse) disarm() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at = 0
}

// log is what was done.
func (f *fuse) log() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.steps...)
}

// wrap puts the fuse between a manager and the API server.
func (f *fuse) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		if request.Method == http.MethodGet {
			f.listed(request)
			return next.RoundTrip(request)
		}
		if !f.alive() {
			return nil, errCrashed
		}
		answer, err := next.RoundTrip(request)
		if strings.Contains(request.URL.Path, "/events") || err != nil {
			return answer, err
		}
		if !f.step(request.Method + " " + request.URL.Path) {
			_ = answer.Body.Close()
			return nil, errCrashed
		}
		return answer, nil
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// fused is a provider behind the fuse.
type fused struct {
	cloud.Provider

	fuse *fuse
}

func ask[T any](f *fuse, what string, call func() (T, error)) (T, error) {
	var none T
	if !f.alive() {
		return none, errCrashed
	}
	answer, err := call()
	if !f.step(what) {
		return none, errCrashed
	}
	return answer, err
}

func (p *fused) Create(ctx context.Context, spec cloud.InstanceSpec) (cloud.Operation, error) {
	return ask(p.fuse, "Create", func() (cloud.Operation, error) { return p.Provider.Create(ctx, spec) })
}

func (p *fused) Delete(ctx context.Context, zone, name, requestID string) (cloud.Operation, error) {
	return ask(p.fuse, "Delete", func() (cloud.Operation, error) { return p.Provider.Delete(ctx, zone, name, requestID) })
}

func (p *fused) Get(ctx context.Context, zone, name string) (*cloud.Instance, error) {
	return ask(p.fuse, "Get", func() (*cloud.Instance, error) { return p.Provider.Get(ctx, zone, name) })
}

func (p *fused) List(ctx context.Context, zone string, labels map[string]string) ([]cloud.Instance, error) {
	if !p.fuse.alive() {
		return nil, errCrashed
	}
	return p.Provider.List(ctx, zone, labels)
}

func (p *fused) Operation(ctx context.Context, operation cloud.Operation) (cloud.Operation, error) {
	return ask(p.fuse, "Operation", func() (cloud.Operation, error) { return p.Provider.Operation(ctx, operation) })
}

func (p *fused) Preemptions(ctx context.Context, zone string, since time.Time) ([]cloud.Preemption, error) {
	return ask(p.fuse, "Preemptions", func() ([]cloud.Preemption, error) { return p.Provider.Preemptions(ctx, zone, since) })
}

func (p *fused) Shape(ctx context.Context, zone, machineType string) (cloud.Shape, error) {
	return ask(p.fuse, "Shape", func() (cloud.Shape, error) { return p.Provider.Shape(ctx, zone, machineType) })
}
