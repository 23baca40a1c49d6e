package auth

import (
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
)

// clock is the clock of a cache.
type clock func() time.Time

// Now implements cache.Clock.
func (c clock) Now() time.Time { return c() }

// cached returns an unexpired value.
func cached[V any](from *cache.LRUExpireCache, key any) (V, bool) {
	value, ok := from.Get(key)
	typed, _ := value.(V)
	return typed, ok
}
