package auth

import (
	"sync"
	"time"
)

// cache of values that hold for a time, of bounded size.
type cache[K comparable, V any] struct {
	max     int
	mu      sync.RWMutex
	entries map[K]entry[V]
}

type entry[V any] struct {
	value V
	until time.Time
}

func newCache[K comparable, V any](limit int) *cache[K, V] {
	return &cache[K, V]{max: limit, entries: map[K]entry[V]{}}
}

func (c *cache[K, V]) get(key K, now time.Time) (value V, ok bool) {
	c.mu.RLock()
	found, ok := c.entries[key]
	c.mu.RUnlock()
	if !ok || !now.Before(found.until) {
		return value, false
	}
	return found.value, true
}

func (c *cache[K, V]) put(key K, value V, until, now time.Time) {
	if !now.Before(until) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.entries) >= c.max {
		c.makeRoom(now)
	}
	c.entries[key] = entry[V]{value, until}
}

// makeRoom drops what holds no more; when that is too little, an eighth of what happens to come first, so that
// the walk is not made again with the next value.
func (c *cache[K, V]) makeRoom(now time.Time) {
	for key, found := range c.entries {
		if !now.Before(found.until) {
			delete(c.entries, key)
		}
	}
	excess := len(c.entries) - c.max + c.max/8
	for key := range c.entries {
		if excess <= 0 {
			return
		}
		delete(c.entries, key)
		excess--
	}
}
