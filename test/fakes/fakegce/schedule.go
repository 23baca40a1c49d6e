package fakegce

import (
	"cmp"
	"slices"
	"time"
)

// Latency says how long things take. Zero: at once.
type Latency struct {
	// Accept is the time until an operation goes from PENDING to RUNNING.
	Accept time.Duration
	// Provision is the time that an instance is PROVISIONING; a stockout or a used up quota is known after it.
	Provision time.Duration
	// Stage is the time that an instance is STAGING before it is RUNNING.
	Stage time.Duration
	// Stop is the time that an instance is STOPPING when it is deleted.
	Stop time.Duration
	// Notice is the time from the notice of a preemption until the instance is off.
	Notice time.Duration
	// Jitter is the share by which each of them varies at random, 0 to 1.
	Jitter float64
}

// RealisticLatency is what Compute Engine takes on a usual day.
func RealisticLatency() Latency {
	return Latency{
		Accept: 700 * time.Millisecond, Provision: 4 * time.Second, Stage: 8 * time.Second,
		Stop: 40 * time.Second, Notice: 30 * time.Second, Jitter: 0.3,
	}
}

// event is something that happens by itself at a time.
type event struct {
	at time.Time
	do func(now time.Time)
}

// after plans something; s.mu is held. What is planned runs with s.mu held, at the planned time whenever it is that the
// clock is looked at, so that a clock that jumps gives the same history as one that walks.
func (s *Server) after(from time.Time, delay time.Duration, do func(now time.Time)) {
	planned := event{at: from.Add(delay), do: do}
	// Behind all of the same time.
	at, _ := slices.BinarySearchFunc(s.queue, planned, func(known, planned event) int {
		return cmp.Or(known.at.Compare(planned.at), -1)
	})
	s.queue = slices.Insert(s.queue, at, planned)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// vary puts some randomness on a latency; s.mu is held.
func (s *Server) vary(delay time.Duration) time.Duration {
	if s.opts.Latency.Jitter == 0 || delay == 0 {
		return delay
	}
	return time.Duration(float64(delay) * (1 + s.opts.Latency.Jitter*(2*s.random.Float64()-1)))
}

// advance does what is due; s.mu is held.
func (s *Server) advance() {
	now := s.clock.Now()
	for len(s.queue) > 0 && !s.queue[0].at.After(now) {
		due := s.queue[0]
		s.queue = s.queue[1:]
		due.do(due.at)
	}
}

// Settle does all that is due by the clock and returns when the hooks for it have returned: for tests that step a clock
// of their own.
func (s *Server) Settle() {
	for settled := (<-chan struct{})(nil); ; {
		leave := s.enter()
		told := s.told
		leave()
		if told == settled {
			return
		}
		<-told
		settled = told
	}
}

// run does what is due without a request, until the server is closed.
func (s *Server) run() {
	for {
		s.mu.Lock()
		s.advance()
		var due <-chan time.Time // never, until something is planned
		stop := func() bool { return true }
		if len(s.queue) > 0 {
			wait := s.queue[0].at.Sub(s.clock.Now())
			if wait <= 0 {
				s.mu.Unlock()
				continue
			}
			timer := s.clock.NewTimer(wait)
			due, stop = timer.C(), timer.Stop
		}
		s.mu.Unlock()
		select {
		case <-s.closed:
			stop()
			return
		case <-due:
		case <-s.wake:
			stop()
		}
	}
}
