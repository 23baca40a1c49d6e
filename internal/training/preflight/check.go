package preflight

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"
)

const (
	// Settling is how long a worker may be out of reach until that is reported: others start later.
	Settling = 10 * time.Second
	// pause between two rounds of probes.
	pause = 500 * time.Millisecond
	// mostProbes at the same time.
	mostProbes = 16
)

// Settings of a check.
type Settings struct {
	// ID is what only the workers of the job know.
	ID string
	// Replica is the index of this worker.
	Replica int
	// Peers are the host names of all workers, in the order of their indexes.
	Peers []string
	// Host is the address to listen at; empty for all.
	Host string
	// Port at which the workers gather.
	Port int
	// ReportPort is where replica 0 serves its Report.
	ReportPort int
	// Settling is the time after which a worker that is out of reach is reported.
	Settling time.Duration
	// Clock tells the time.
	Clock clock.Clock
	// Log tells what is found.
	Log *slog.Logger
}

// check is one worker's part.
type check struct {
	Settings
	*prober

	random int // the port that was chosen at random

	mu sync.Mutex
	// unreached are the workers that this one has not reached.
	unreached map[int]*finding
	// views of the others, at replica 0.
	views map[int]view
	// released is closed when replica 0 lets this worker go.
	released chan struct{}
}

// finding is why a worker is not reached, and since when.
type finding struct {
	last  *problem // nil until the worker has been asked
	since time.Time
	told  bool
}

// Run returns once all workers reach one another. It does not give up before.
func Run(ctx context.Context, settings Settings) error {
	return newCheck(settings).run(ctx)
}

func newCheck(settings Settings) *check {
	c := &check{
		Settings: settings, prober: newProber(settings.ID, settings.Port), unreached: map[int]*finding{}, views: map[int]view{},
		released: make(chan struct{}),
	}
	for peer := range c.Peers {
		if peer != c.Replica {
			c.unreached[peer] = &finding{since: c.Clock.Now()}
		}
	}
	return c
}

func (c *check) run(ctx context.Context) error {
	stop, err := c.serve(ctx)
	if err != nil {
		return err
	}
	defer stop()
	if err := c.reachAll(ctx); err != nil {
		return err
	}
	c.Log.Info("this worker reaches all others", "workers", len(c.Peers), "port", c.Port)
	if c.Replica == 0 {
		return c.releaseAll(ctx)
	}
	select {
	case <-c.released:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// serve answers the other workers and, at replica 0, the manager. A stop lets answers that are under way come to their end.
func (c *check) serve(ctx context.Context) (stop func(), err error) {
	workers, manager := http.NewServeMux(), http.NewServeMux()
	workers.HandleFunc("GET "+viewPath, c.serveView)
	workers.HandleFunc("POST "+viewPath, c.serveView)
	manager.HandleFunc("GET "+ReportPath, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, c.report()) })
	var servers []*http.Server
	stop = func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTime)
		defer cancel()
		for _, server := range servers {
			_ = server.Shutdown(ending)
		}
	}
	listen := func(port int, handler http.Handler) (of int, err error) {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(c.Host, strconv.Itoa(port)))
		if err != nil {
			return 0, fmt.Errorf("serve the check of the network: %w", err)
		}
		server := &http.Server{Handler: handler, ReadHeaderTimeout: answerTime, WriteTimeout: 2 * answerTime, MaxHeaderBytes: 16 << 10}
		servers = append(servers, server)
		go func() { _ = server.Serve(listener) }() // ends with the server
		return listener.Addr().(*net.TCPAddr).Port, nil
	}
	if c.random, err = listen(0, workers); err == nil {
		_, err = listen(c.Port, workers)
	}
	if err == nil && c.Replica == 0 {
		_, err = listen(c.ReportPort, manager)
	}
	if err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

func (c *check) serveView(w http.ResponseWriter, r *http.Request) {
	if subtle.ConstantTimeCompare([]byte(r.URL.Query().Get("id")), []byte(c.ID)) == 0 {
		http.Error(w, "id: is that of another job", http.StatusForbidden)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	writeJSON(w, view{Replica: c.Replica, Port: c.random, Complete: len(c.unreached) == 0, Pairs: c.ownPairs()})
	if r.Method == http.MethodPost {
		select {
		case <-c.released:
		default:
			close(c.released)
		}
	}
}

func writeJSON(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value) // who asked is gone, and asks again
}

// ownPairs are the workers that this one has asked, and has not reached for a while.
func (c *check) ownPairs() []Pair {
	var pairs []Pair
	for peer, found := range c.unreached {
		if found.last != nil && c.late(found) {
			pairs = append(pairs, Pair{From: c.Replica, To: peer, Cause: found.last.cause, Detail: found.last.detail})
		}
	}
	return newReport(pairs).Pairs
}

func (c *check) late(found *finding) bool { return c.Clock.Since(found.since) >= c.Settling }

// report is what replica 0 knows of all.
func (c *check) report() Report {
	c.mu.Lock()
	defer c.mu.Unlock()
	pairs := c.ownPairs()
	for _, of := range c.views {
		pairs = append(pairs, of.Pairs...)
	}
	return newReport(pairs)
}

// reachAll asks the others until all have answered.
func (c *check) reachAll(ctx context.Context) error {
	return c.rounds(ctx, func(ctx context.Context) (done bool) {
		c.each(c.left(), func(peer int) {
			failed := c.reach(ctx, peer, c.Peers[peer])
			if ctx.Err() == nil {
				c.found(peer, failed)
			}
		})
		if c.Replica == 0 {
			c.readViews(ctx)
		}
		return len(c.left()) == 0
	})
}

// found keeps the outcome of a probe.
func (c *check) found(peer int, failed *problem) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if failed == nil {
		delete(c.unreached, peer)
		return
	}
	known := c.unreached[peer]
	known.last = failed
	if c.late(known) && !known.told {
		known.told = true
		c.Log.Warn("another worker is not reached; trying again", "replica", peer, "cause", string(failed.cause), "detail", failed.detail)
	}
}

// left are the workers that this one has not reached yet.
func (c *check) left() []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	var peers []int
	for peer := range c.unreached {
		peers = append(peers, peer)
	}
	slices.Sort(peers)
	return peers
}

// readViews asks those others for their views that are reached, and have not reached all. It says whether all have.
func (c *check) readViews(ctx context.Context) (all bool) {
	unreached, all := c.left(), true
	var ask []int
	for peer := range c.Peers {
		if known := c.viewOf(peer); peer != c.Replica && !known.Complete {
			all = false
			if !slices.Contains(unreached, peer) {
				ask = append(ask, peer)
			}
		}
	}
	c.each(ask, func(peer int) {
		if seen, failed := c.view(ctx, c.Peers[peer], http.MethodGet); failed == nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.views[peer] = seen
		}
	})
	return all
}

func (c *check) viewOf(peer int) view {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.views[peer]
}

// releaseAll lets the others go once all have reached one another. One that is gone has heard it: only then does it go.
func (c *check) releaseAll(ctx context.Context) error {
	if err := c.rounds(ctx, c.readViews); err != nil {
		return err
	}
	told := map[int]bool{c.Replica: true}
	return c.rounds(ctx, func(ctx context.Context) bool {
		var mu sync.Mutex
		var ask []int
		for peer := range c.Peers {
			if !told[peer] {
				ask = append(ask, peer)
			}
		}
		c.each(ask, func(peer int) {
			_, failed := c.view(ctx, c.Peers[peer], http.MethodPost)
			mu.Lock()
			defer mu.Unlock()
			told[peer] = failed == nil || failed.cause != NoAnswer
		})
		return !slices.ContainsFunc(ask, func(peer int) bool { return !told[peer] })
	})
}

// rounds repeats a step, with pauses, until it is done.
func (c *check) rounds(ctx context.Context, step func(context.Context) (done bool)) error {
	for {
		if step(ctx) {
			return ctx.Err()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.Clock.After(pause):
		}
	}
}

// each calls a function for the workers, some at the same time.
func (c *check) each(peers []int, do func(peer int)) {
	var probes errgroup.Group
	probes.SetLimit(mostProbes)
	for _, peer := range peers {
		probes.Go(func() error {
			do(peer)
			return nil
		})
	}
	_ = probes.Wait() // none fails
}
