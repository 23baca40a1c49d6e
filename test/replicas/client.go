package replicas

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"time"
)

// visibility of leases: short, so that many end before their jobs do.
const visibility = 1500 * time.Millisecond

var errConflict = errors.New("conflict")

func slogHandler() slog.Handler { return slog.NewTextHandler(os.Stderr, nil) }

// client asks any of the services.
type client struct {
	services []string
	http     *http.Client
}

func newClient(services []string) *client {
	return &client{services: services, http: &http.Client{
		Timeout: 8 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64},
	}}
}

func (c *client) ask(ctx context.Context, path string, question request) (a answer, err error) {
	body, err := json.Marshal(question)
	if err != nil {
		return a, err
	}
	address := c.services[rand.IntN(len(c.services))]
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+path, bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	reply, err := c.http.Do(r)
	if err != nil {
		return a, err
	}
	defer func() { _ = reply.Body.Close() }()
	switch reply.StatusCode {
	case http.StatusOK:
		err = json.NewDecoder(reply.Body).Decode(&a)
		return a, err
	case http.StatusConflict:
		return a, errConflict
	}
	return a, fmt.Errorf("%s: %s", path, reply.Status)
}

// work is the process of a worker: a few jobs at a time, for ever.
func work(services []string, folder, name string) error {
	history, err := newRecorder(folder, "worker-"+name)
	if err != nil {
		return err
	}
	c := newClient(services)
	for i := range 6 {
		go func() {
			for {
				a, err := c.ask(context.Background(), "/lease", request{N: 1 + i, Worker: name})
				if err != nil {
					time.Sleep(20 * time.Millisecond)
					continue
				}
				// All of a lease are worked on at once, as each has its own end.
				done := make(chan struct{})
				for _, g := range a.Leases {
					history.note(leased, g.Job, g.Fence, g.Until)
					go func() { c.run(history, g); done <- struct{}{} }()
				}
				for range a.Leases {
					<-done
				}
			}
		}()
	}
	select {}
}

// run works on a job: most take no time, some longer than a lease, and some fail.
func (c *client) run(history *recorder, g given) {
	ctx := context.Background()
	until := g.Until
	if rand.IntN(100) == 0 {
		for range 4 {
			time.Sleep(visibility / 3)
			a, err := c.ask(ctx, "/heartbeat", request{Job: g.Job, Fence: g.Fence})
			switch {
			case err == nil && a.Stop, errors.Is(err, errConflict):
				history.note(left, g.Job, g.Fence, time.Time{})
				return
			case err == nil:
				history.note(kept, g.Job, g.Fence, a.Until)
				until = a.Until
			case time.Now().After(until):
				history.note(left, g.Job, g.Fence, time.Time{})
				return
			}
		}
	} else {
		time.Sleep(time.Duration(rand.IntN(5)) * time.Millisecond)
	}
	path, final, kind := "/complete", false, completed
	switch n := rand.IntN(100); {
	case n < 3:
		path, kind = "/fail", ""
	case n < 5:
		path, final, kind = "/fail", true, failed
	}
	history.note(left, g.Job, g.Fence, time.Time{})
	// Said until it was heard, as workers do: each time with the fence.
	for range 20 {
		_, err := c.ask(ctx, path, request{Job: g.Job, Fence: g.Fence, Final: final})
		if err == nil && kind != "" {
			history.note(kind, g.Job, g.Fence, time.Time{})
		}
		if err == nil || errors.Is(err, errConflict) {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}
