package aijob

import (
	"sync"
	"time"
)

const (
	// busyWrites is how many statuses that cannot wait are written in a second by a manager that counts as busy: one that saves what
	// it can.
	busyWrites = 30
	// spareWrites is how many a busy manager writes in a second that could wait.
	spareWrites = 10
)

// load is how many statuses this manager writes. Nothing but what is told, and how soon, depends on it.
type load struct {
	mu sync.Mutex
	// second is the present one; needed are the statuses written in it that could not wait, late those that could.
	second       time.Time
	needed, late int
	// before is what was needed in the second before.
	before int
}

// busy says whether many statuses are being written that cannot wait, spare whether there is time nevertheless for one that can.
func (l *load) busy(now time.Time) (busy, spare bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turn(now)
	return max(l.needed, l.before) >= busyWrites, l.late < spareWrites
}

// wrote notes that a status was written, and whether it could have waited.
func (l *load) wrote(now time.Time, couldWait bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turn(now)
	if couldWait {
		l.late++
	} else {
		l.needed++
	}
}

// turn to the present second. What was seen before another began counts for that one.
func (l *load) turn(now time.Time) {
	second := now.Truncate(time.Second)
	if !second.After(l.second) {
		return
	}
	l.before = 0
	if second.Equal(l.second.Add(time.Second)) {
		l.before = l.needed
	}
	l.second, l.needed, l.late = second, 0, 0
}
