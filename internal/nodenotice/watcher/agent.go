// Package watcher runs on every spot node: it follows the metadata server of the instance and leaves a notice of its
// end on the Node at once. It takes the notice off again when the instance turns out to go on, or has come back.
package watcher

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/internal/nodenotice"
	"github.com/dcnlab/spot-training-operator/internal/nodenotice/metadata"
)

// The pauses between tries of writing to the API server.
const (
	retryFirst = 100 * time.Millisecond
	retryMax   = 2 * time.Second
)

// Agent of one node.
type Agent struct {
	// Node is its name.
	Node string
	// Client of the API server, without a cache.
	Client client.Client
	// Metadata of the instance.
	Metadata *metadata.Follower
	// Log gets one line for each event.
	Log *slog.Logger
}

// Run follows the metadata server until the context ends.
func (a *Agent) Run(ctx context.Context) {
	var group sync.WaitGroup
	changes := make(chan told, 16)
	for _, key := range []string{metadata.KeyPreempted, metadata.KeyMaintenance} {
		group.Go(func() {
			a.Metadata.Follow(ctx, key, func(text string, seen time.Time) {
				a.Log.Info("the metadata server tells", "key", key, "value", text, "seen", seen)
				select {
				case changes <- told{key, text, seen}:
				case <-ctx.Done():
				}
			})
		})
	}
	a.act(ctx, changes)
	group.Wait()
}

// told is the value of a key, and since when.
type told struct {
	key, text string
	since     time.Time
}

// act brings the Node in line with what was told, and tries again until that is done or something else is told.
func (a *Agent) act(ctx context.Context, changes <-chan told) {
	known := map[string]told{}
	var again <-chan time.Time
	pause := retryFirst
	for {
		select {
		case <-ctx.Done():
			return
		case is := <-changes:
			known[is.key] = is
			pause = retryFirst
		case <-again:
		}
		again = nil
		if err := a.apply(ctx, planFor(known)); err != nil && ctx.Err() == nil {
			if pause == retryFirst {
				a.Log.Warn("cannot write to the node; trying again", "error", err.Error())
			}
			again = time.After(pause)
			pause = min(2*pause, retryMax)
		}
	}
}

// plan is what should be done to the Node.
type plan struct {
	// clear notices of these sources, which no longer hold.
	clear []nodenotice.Source
	// mark the Node with this notice.
	mark *nodenotice.Notice
}

// planFor what was told. Of what was not told nothing is concluded: a notice that an earlier run left stays until the
// server says otherwise.
func planFor(known map[string]told) (p plan) {
	if is, ok := known[metadata.KeyPreempted]; ok {
		if is.text == metadata.Preempted {
			return plan{mark: &nodenotice.Notice{Source: nodenotice.MetadataServer, Time: is.since}}
		}
		p.clear = append(p.clear, nodenotice.MetadataServer)
	}
	if is, ok := known[metadata.KeyMaintenance]; ok {
		if is.text == metadata.Terminates {
			p.mark = &nodenotice.Notice{Source: nodenotice.HostMaintenance, Time: is.since}
		} else {
			p.clear = append(p.clear, nodenotice.HostMaintenance)
		}
	}
	return p
}

func (a *Agent) apply(ctx context.Context, p plan) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if len(p.clear) > 0 {
		if err := nodenotice.Clear(ctx, a.Client, a.Node, p.clear...); err != nil {
			return err
		}
	}
	if p.mark == nil {
		return nil
	}
	if err := nodenotice.Mark(ctx, a.Client, a.Node, *p.mark); err != nil {
		return err
	}
	a.Log.Info("the node is marked as going away", "source", p.mark.Source, "after", time.Since(p.mark.Time).String())
	return nil
}

// ServeHTTP answers whether the agent works: 200, or 503 and the keys that it no longer follows.
func (a *Agent) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if stuck := a.Metadata.Stuck(time.Now()); len(stuck) > 0 {
		http.Error(w, fmt.Sprintf("no longer following %v", stuck), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}
