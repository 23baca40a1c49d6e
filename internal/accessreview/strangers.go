package accessreview

import (
	"crypto/sha256"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/dcnlab/spot-training-operator/internal/clientaddress"
)

const (
	// maxRefused is how many requests of one address the API server is asked about in a minute and refuses. After that only tokens that were good
	// are reviewed: made-up ones would take the reviews away from those that read the metrics.
	maxRefused = 30
	// goodFor is how long a token counts as one that was good.
	goodFor = time.Hour
	// maxAddresses that are counted apart within a minute; further ones are counted together.
	maxAddresses = 1 << 12
)

// strangers counts what is refused, by address. All counts of a minute are forgotten together.
type strangers struct {
	now  func() time.Time
	good *cache.LRUExpireCache

	mu      sync.Mutex
	minute  int64
	refused map[string]int
}

func newStrangers(now func() time.Time) *strangers {
	return &strangers{now: now, good: cache.NewLRUExpireCacheWithClock(maxAnswers, clock(now))}
}

// enter counts a request as refused, unless its token was good; false when it is one too many.
func (s *strangers) enter(r *http.Request, token [sha256.Size]byte) (counted string, ok bool) {
	if _, good := s.good.Get(token); good {
		return "", true
	}
	address := "unknown"
	if from, ok := clientaddress.Parse(r.RemoteAddr); ok {
		address = clientaddress.Of(from)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if minute := s.now().Unix() / 60; s.refused == nil || minute != s.minute {
		s.minute, s.refused = minute, map[string]int{}
	}
	if _, known := s.refused[address]; !known && len(s.refused) >= maxAddresses {
		address = "others"
	}
	if s.refused[address] >= maxRefused {
		return "", false
	}
	s.refused[address]++
	return address, true
}

// leave takes the count back: the request was not refused.
func (s *strangers) leave(counted string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refused[counted] > 0 {
		s.refused[counted]--
	}
}

// clock of a cache.
type clock func() time.Time

// Now implements the clock of a cache.
func (c clock) Now() time.Time { return c() }
