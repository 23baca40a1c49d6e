package aijob

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// memory is what the manager remembers of jobs; nothing but how soon things are told depends on it.
type memory struct {
	mu   sync.Mutex
	jobs map[types.NamespacedName]remembered
	// written is how many statuses were written in the second, before in the one before it.
	second          time.Time
	written, before int
}

// busyWrites is how many statuses are written in a second by a manager that counts as busy: one that saves what it can.
const busyWrites = 30

// busy says whether many statuses are being written.
func (m *memory) busy(now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.turn(now)
	return max(m.written, m.before) >= busyWrites
}

// turn to the present second.
func (m *memory) turn(now time.Time) {
	second := now.Truncate(time.Second)
	if second.Equal(m.second) {
		return
	}
	m.before = 0
	if second.Equal(m.second.Add(time.Second)) {
		m.before = m.written
	}
	m.second, m.written = second, 0
}

type remembered struct {
	uid        types.UID
	seen, told time.Time
}

// of a job that is looked at now.
func (m *memory) of(key types.NamespacedName, uid types.UID, now time.Time) remembered {
	m.mu.Lock()
	defer m.mu.Unlock()
	known, ok := m.jobs[key]
	if !ok || known.uid != uid {
		known = remembered{uid: uid, seen: now}
		if m.jobs == nil {
			m.jobs = map[types.NamespacedName]remembered{}
		}
		m.jobs[key] = known
	}
	return known
}

// tell notes that the status was written now.
func (m *memory) tell(key types.NamespacedName, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.turn(now)
	m.written++
	if known, ok := m.jobs[key]; ok {
		known.told = now
		m.jobs[key] = known
	}
}

func (m *memory) forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.jobs, key)
}
