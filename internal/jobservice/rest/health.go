package rest

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"sync"
	"time"
)

const (
	healthTimeout = 3 * time.Second
	// healthFreshFor keeps a path that needs no token from making the service work.
	healthFreshFor = time.Second
)

// health remembers the last answer for a short time.
type health struct {
	mu     sync.Mutex
	at     time.Time
	checks map[string]string // of each server: ok, failed or off
	ok     bool
}

func (s *service) live(*call) ([]byte, error) {
	return json.Marshal(map[string]string{"status": "ok"})
}

func (s *service) ready(c *call) ([]byte, error) {
	checks, ok := s.check()
	status, word := http.StatusOK, "ready"
	if !ok {
		status, word = http.StatusServiceUnavailable, "degraded"
	}
	answer := map[string]any{"status": word, "checks": checks}
	// What is kept can still be read, so that the service stays in use.
	if s.RefuseJobs != "" {
		answer["message"] = s.RefuseJobs
	}
	text, err := json.Marshal(answer)
	c.answer(status, text)
	return nil, err
}

// check asks every server that the service needs. The answer says which one fails, the log why.
func (s *service) check() (map[string]string, bool) {
	h := &s.health
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.at.IsZero() && s.Now().Sub(h.at) < healthFreshFor {
		return h.checks, h.ok
	}
	ctx, cancel := context.WithTimeout(s.Context, healthTimeout)
	defer cancel()
	cluster := make(chan error, 1)
	if s.Kubernetes != nil {
		go func() { cluster <- s.Kubernetes.Check(ctx) }()
	}
	failures := map[string]error{}
	maps.Copy(failures, s.Store.Check(ctx))
	h.checks, h.ok = map[string]string{"kubernetes": "off"}, s.Context.Err() == nil
	if s.Kubernetes != nil {
		failures["kubernetes"] = <-cluster
	}
	for name, err := range failures {
		h.checks[name] = "ok"
		if err != nil {
			h.checks[name], h.ok = "failed", false
			s.Log.Error(err, "Backend unavailable", "server", name)
		}
	}
	h.at = s.Now()
	return h.checks, h.ok
}
