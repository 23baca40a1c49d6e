// Package metadata follows keys of the metadata server that every Compute Engine instance has: one request for each key
// hangs there until the value changes, so that a change is known within a round trip.
package metadata

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// Keys below instance/ that announce an instance's end, and what they say then.
const (
	// KeyPreempted is TRUE from the notice of a preemption on.
	KeyPreempted = "instance/preempted"
	// Preempted is its value then.
	Preempted = "TRUE"
	// KeyMaintenance announces a maintenance of the host that is near.
	KeyMaintenance = "instance/maintenance-event"
	// Terminates is its value when the instance is stopped for it.
	Terminates = "TERMINATE_ON_HOST_MAINTENANCE"
)

// DefaultURL is the metadata server by its address: the name metadata.google.internal is known only where the pod's name
// server is Google's.
const DefaultURL = "http://169.254.169.254"

// dialTimeout is short: the server is on the same host.
const dialTimeout = 2 * time.Second

// Options of a Follower. Zero durations get the defaults.
type Options struct {
	// URL of the metadata server.
	URL string
	// Log gets one line when the server cannot be reached, and one when it can again.
	Log *slog.Logger
	// Hold is how long the server may hold a request. It bounds what a connection that died silently costs of a notice
	// of 30 seconds (default 10 s).
	Hold time.Duration
	// Slack is for a slow answer, over Hold (default 3 s).
	Slack time.Duration
	// RetryFirst and RetryMax bound the pause after a failure of a server that was there (defaults 100 ms and 2 s).
	RetryFirst, RetryMax time.Duration
	// AbsentFirst and AbsentMax bound the pause while there has been no server: on machines that are no instances of
	// Compute Engine (defaults 1 s and 5 min).
	AbsentFirst, AbsentMax time.Duration
}

// Follower follows keys.
type Follower struct {
	options   Options
	transport http.RoundTripper

	mutex sync.Mutex
	// due is until when each key should have been asked for again.
	due map[string]time.Time
}

// New returns a follower.
func New(options Options) *Follower {
	for duration, preset := range map[*time.Duration]time.Duration{
		&options.Hold: 10 * time.Second, &options.Slack: 3 * time.Second,
		&options.RetryFirst: 100 * time.Millisecond, &options.RetryMax: 2 * time.Second,
		&options.AbsentFirst: time.Second, &options.AbsentMax: 5 * time.Minute,
	} {
		if *duration == 0 {
			*duration = preset
		}
	}
	return &Follower{options: options, transport: newTransport(), due: map[string]time.Time{}}
}

// Follow calls changed with the value of a key as it is now, and with each later one, until the context ends. changed is
// told when the value was seen; it must not block.
func (f *Follower) Follow(ctx context.Context, key string, changed func(text string, seen time.Time)) {
	t := turn{Follower: f, key: key, log: f.options.Log.With("key", key)}
	for ctx.Err() == nil {
		f.expect(key, f.options.Hold+f.options.Slack)
		is, err := f.get(ctx, key, t.last.etag, f.options.Hold)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			t.failed(err)
		} else {
			t.answered(is, changed)
		}
		t.rest(ctx)
	}
}

// Stuck returns the keys that have not been asked for in time, which is never so unless something is broken.
func (f *Follower) Stuck(now time.Time) (keys []string) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	for key, due := range f.due {
		if now.After(due) {
			keys = append(keys, key)
		}
	}
	return keys
}

// expect the next turn of a key within a time, generously.
func (f *Follower) expect(key string, within time.Duration) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.due[key] = time.Now().Add(2*within + 10*time.Second)
}

// turn is how following one key goes on.
type turn struct {
	*Follower

	key  string
	log  *slog.Logger
	last value
	// known: the server has answered once. failures since the last answer.
	known    bool
	failures int
	pause    time.Duration
}

func (t *turn) answered(is value, changed func(string, time.Time)) {
	seen := time.Now()
	if t.failures > 0 {
		t.log.Info("the metadata server answers", "failures", t.failures)
	}
	if !t.known || is.text != t.last.text {
		changed(is.text, seen)
	}
	t.known, t.failures, t.last, t.pause = true, 0, is, 0
	if is.etag == "" { // no request can hang without one
		t.pause = t.options.RetryMax
	}
}

// failed sets the pause until the next try: a moment where there is a server, longer and longer where there is none. A
// held request that is not answered in time is no problem of the server: the connection has died.
func (t *turn) failed(err error) {
	first, most := t.options.RetryFirst, t.options.RetryMax
	if !t.known {
		first, most = t.options.AbsentFirst, t.options.AbsentMax
	}
	t.pause = min(first<<min(t.failures, 16), most)
	t.failures++
	var stranger strangerError
	switch {
	case t.failures > 1:
	case t.known:
		t.log.Warn("the metadata server does not answer; asking again", "error", err.Error())
	case errors.As(err, &stranger):
		t.log.Info("there is no such key here; looking again from time to time", "error", err.Error())
	default:
		t.log.Info("there is no metadata server of Compute Engine here; looking again from time to time", "error", err.Error())
	}
}

// rest until the pause is over, a little more or less so that the nodes of a cluster do not ask in step.
func (t *turn) rest(ctx context.Context) {
	if t.pause == 0 {
		return
	}
	t.expect(t.key, t.pause)
	select {
	case <-time.After(t.pause*3/4 + rand.N(t.pause/2+1)): //nolint:gosec // spreads requests
	case <-ctx.Done():
	}
}
