package rest

import (
	"hash/maphash"
	"sync"
	"time"
)

// Limits are how many requests a client may send in a minute; 0: any number. A client is the subject of a token, or an
// address when there is no valid one. The minutes are those of the clock, so that around their change a client may
// send twice as many within a minute.
type Limits struct {
	// Create is for POST /jobs/ and /jobs/batch, each counted as one; List for GET /jobs/; Tasks for what workers send.
	Create, List, Tasks, Other int
}

// DefaultLimits are those of the interface's description. Workers are not limited: they have no more leases than tasks.
var DefaultLimits = Limits{Create: 100, List: 300, Tasks: 0, Other: 600}

// class of requests with a limit of its own.
type class uint8

const (
	classOther class = iota
	classCreate
	classList
	classTasks
	classes
)

// String implements fmt.Stringer.
func (c class) String() string {
	return [classes]string{"other", "create", "list", "tasks"}[c]
}

const (
	limiterShards = 16
	// maxClients that are counted apart in a shard within a minute; all further ones are counted together, so that neither
	// memory grows without bound nor a client escapes by making up names.
	maxClients = 8192
)

// limiter counts requests. All counts of a minute are forgotten together.
type limiter struct {
	limits [classes]int
	seed   maphash.Seed
	shards [limiterShards]limiterShard
}

type limiterShard struct {
	mu     sync.Mutex
	minute int64
	counts map[limiterKey]int
}

type limiterKey struct {
	client string
	class  class
}

// taken is the answer of the limiter.
type taken struct {
	limit, remaining int
	// reset is when the next minute begins, in seconds since 1970.
	reset int64
	ok    bool
}

func newLimiter(limits Limits) *limiter {
	l := &limiter{seed: maphash.MakeSeed()}
	l.limits = [classes]int{classOther: limits.Other, classCreate: limits.Create, classList: limits.List, classTasks: limits.Tasks}
	return l
}

// take counts a request; false: this class has no limit.
func (l *limiter) take(class class, client string, now time.Time) (taken, bool) {
	limit := l.limits[class]
	if limit <= 0 {
		return taken{}, false
	}
	minute := now.Unix() / 60
	key := limiterKey{client, class}
	shard := &l.shards[maphash.String(l.seed, client)%limiterShards]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	// A clock that is set back does not give a client a second minute.
	if shard.counts == nil || minute > shard.minute {
		shard.minute, shard.counts = minute, map[limiterKey]int{}
	}
	count, known := shard.counts[key]
	if !known && len(shard.counts) >= maxClients {
		key.client = ""
		count = shard.counts[key]
	}
	answer := taken{limit: limit, reset: (shard.minute + 1) * 60}
	if count < limit {
		count++
		shard.counts[key] = count
		answer.ok = true
	}
	answer.remaining = limit - count
	return answer, true
}

// giveBack takes back a request of the class other, in this minute, that need not have been counted.
func (l *limiter) giveBack(client string, now time.Time) {
	key := limiterKey{client, classOther}
	shard := &l.shards[maphash.String(l.seed, client)%limiterShards]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if count := shard.counts[key]; count > 0 && now.Unix()/60 == shard.minute {
		shard.counts[key] = count - 1
	}
}
