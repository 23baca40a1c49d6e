package rest

import "sync"

// maxRecent entries of a generation.
const maxRecent = 1 << 16

// recent remembers what was put into it last, in two generations: when the newer one is full the older one is forgotten.
type recent struct {
	mu           sync.Mutex
	newer, older map[string]string
}

func (r *recent) get(key string) (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	value, ok := r.newer[key]
	if !ok {
		value, ok = r.older[key]
	}
	return value, ok
}

func (r *recent) put(key, value string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.newer == nil || len(r.newer) >= maxRecent {
		r.newer, r.older = map[string]string{}, r.newer
	}
	r.newer[key] = value
}
