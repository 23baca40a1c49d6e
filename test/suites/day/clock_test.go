package day

import (
	"container/heap"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

// virtual is the clock of the simulated day. It knows when the next timer fires, so that it can jump there.
type virtual struct {
	*clocktesting.FakeClock

	mu     sync.Mutex
	timers times
}

var _ clock.WithTicker = (*virtual)(nil)

func newVirtual(start time.Time) *virtual {
	return &virtual{FakeClock: clocktesting.NewFakeClock(start)}
}

func (v *virtual) NewTimer(d time.Duration) clock.Timer {
	v.note(v.Now().Add(d))
	return v.FakeClock.NewTimer(d)
}

func (v *virtual) note(at time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	heap.Push(&v.timers, at)
}

// next is when something is due; the end of time when nothing is.
func (v *virtual) next() (time.Time, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := v.Now()
	for len(v.timers) > 0 && !v.timers[0].After(now) {
		heap.Pop(&v.timers)
	}
	if len(v.timers) == 0 {
		return time.Time{}, false
	}
	return v.timers[0], true
}

type times []time.Time

func (t times) Len() int           { return len(t) }
func (t times) Less(i, j int) bool { return t[i].Before(t[j]) }
func (t times) Swap(i, j int)      { t[i], t[j] = t[j], t[i] }
func (t *times) Push(x any)        { *t = append(*t, x.(time.Time)) }
func (t *times) Pop() any {
	last := len(*t) - 1
	x := (*t)[last]
	*t = (*t)[:last]
	return x
}

// activity tells when nothing happens any more.
type activity struct {
	running atomic.Int64
	count   atomic.Int64
}

// begin something; the returned function ends it.
func (a *activity) begin() func() {
	a.running.Add(1)
	a.count.Add(1)
	return func() {
		a.count.Add(1)
		a.running.Add(-1)
	}
}

func (a *activity) bump() { a.count.Add(1) }

// settle waits until nothing has happened for some time.
func (a *activity) settle(quiet time.Duration) {
	last, since := a.count.Load(), time.Now()
	for {
		time.Sleep(quiet / 8)
		if now := a.count.Load(); now != last || a.running.Load() > 0 {
			last, since = now, time.Now()
			continue
		}
		if time.Since(since) >= quiet {
			return
		}
	}
}
