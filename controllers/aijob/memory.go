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
