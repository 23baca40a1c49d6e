package fakegce

import (
	"slices"
	"time"
)

// Fault is something that goes wrong with requests.
type Fault struct {
	// Method and Zone choose the requests; empty for all.
	Method, Zone string
	// After is the number of such requests that go well before.
	After int
	// Times is how often it happens; 0 for always.
	Times int

	// Exactly one of the following is set.

	// Status, Reason and Message are answered instead of doing anything. RetryAfter is the header of that name.
	Status          int
	Reason, Message string
	RetryAfter      time.Duration
	// LoseAnswer does what is asked and cuts the connection.
	LoseAnswer bool
	// LoseRequest cuts the connection and does nothing.
	LoseRequest bool
	// Twice does what is asked twice, as when the network delivers a request twice, and gives the second answer.
	Twice bool

	seen, happened int
}

// Inject lets something go wrong until remove is called.
func (s *Server) Inject(fault Fault) (remove func()) {
	defer s.enter()()
	f := &fault
	s.faults = append(s.faults, f)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.faults = slices.DeleteFunc(s.faults, func(known *Fault) bool { return known == f })
	}
}

// Deny takes the permission for methods from the service account; for all methods when none is named.
func (s *Server) Deny(methods ...string) {
	defer s.enter()()
	if len(methods) == 0 {
		methods = []string{""}
	}
	for _, name := range methods {
		s.denied[name] = true
	}
}

// Allow gives all permissions back.
func (s *Server) Allow() {
	defer s.enter()()
	clear(s.denied)
}

// fault is what goes wrong with a request; zero for nothing.
func (s *Server) fault(c *call) Fault {
	defer s.enter()()
	for _, f := range s.faults {
		if f.Method != "" && f.Method != c.method.Id || f.Zone != "" && f.Zone != c.zone {
			continue
		}
		f.seen++
		if f.seen > f.After && (f.Times == 0 || f.happened < f.Times) {
			f.happened++
			return *f
		}
	}
	return Fault{}
}

func (f Fault) refusal() *refusal {
	if f.Status == 0 {
		return nil
	}
	return &refusal{status: f.Status, reason: f.Reason, message: f.Message, retryAfter: f.RetryAfter}
}
