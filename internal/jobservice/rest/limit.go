package rest

import (
	"fmt"
	"net/http"
	"sync"
	"time"
)

// Limits are how many requests, and how many jobs with them, a client may send in a minute; 0: any number. A client is the subject of a token, or an
// address when there is no valid one. The minutes are those of the clock, so that around their change a client may
// send twice as many within a minute.
type Limits struct {
	// Create is for POST /jobs/ and /jobs/batch, each counted as one; List for GET /jobs/; Tasks for what workers send.
	Create, List, Tasks, Other int
	// Jobs is for the jobs in POST /jobs/ and /jobs/batch, and those that are requeued, each counted.
	Jobs int
}

// DefaultLimits are those of the interface's description. Workers are not limited: they have no more leases than tasks.
var DefaultLimits = Limits{Create: 100, List: 300, Tasks: 0, Other: 600, Jobs: 10_000}

// class of requests with a limit of its own.
type class uint8

const (
	classOther class = iota
	classCreate
	classList
	classTasks
	classJobs
	classes
)

// String implements fmt.Stringer.
func (c class) String() string {
	return [classes]string{"other", "create", "list", "tasks", "jobs"}[c]
}

// maxClients that are counted apart within a minute; all further ones are counted together, so that neither memory grows without
// bound nor a client escapes by making up names.
const maxClients = 1 << 17

// limiter counts requests. All counts of a minute are forgotten together.
type limiter struct {
	limits [classes]int
	mu     sync.Mutex
	minute int64
	counts map[limiterKey]int
}

type limiterKey struct {
	client string
	class  class
}

// taken is the answer of the limiter; a limit of 0: this class has none.
type taken struct {
	limit, remaining int
	// reset is when the next minute begins, in seconds since 1970.
	reset int64
	ok    bool
}

func newLimiter(limits Limits) *limiter {
	return &limiter{limits: [classes]int{
		classOther: limits.Other, classCreate: limits.Create, classList: limits.List, classTasks: limits.Tasks, classJobs: limits.Jobs,
	}}
}

// take counts a request, or n jobs, all of them or none.
func (l *limiter) take(class class, client string, n int, now time.Time) taken {
	limit := l.limits[class]
	if limit <= 0 {
		return taken{ok: true}
	}
	minute := now.Unix() / 60
	key := limiterKey{client, class}
	l.mu.Lock()
	defer l.mu.Unlock()
	// A clock that is set back does not give a client a second minute.
	if l.counts == nil || minute > l.minute {
		l.minute, l.counts = minute, map[limiterKey]int{}
	}
	count, known := l.counts[key]
	if !known && len(l.counts) >= maxClients {
		key.client = ""
		count = l.counts[key]
	}
	answer := taken{limit: limit, reset: (l.minute + 1) * 60}
	if count+n <= limit {
		count += n
		l.counts[key] = count
		answer.ok = true
	}
	answer.remaining = limit - count
	return answer
}

// giveBack takes back a request of the class other, in this minute, that need not have been counted.
func (l *limiter) giveBack(client string, now time.Time) {
	key := limiterKey{client, classOther}
	l.mu.Lock()
	defer l.mu.Unlock()
	if count := l.counts[key]; count > 0 && now.Unix()/60 == l.minute {
		l.counts[key] = count - 1
	}
}

// maxStreams of one user at a time: each holds a connection here, and one to the API server for every pod.
const maxStreams = 50

// streams are counted by user.
type streams struct {
	mu   sync.Mutex
	open map[string]int
}

// begin another one of a user, after which end must be called. The error is that it is one too many.
func (s *streams) begin(user string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[user] >= maxStreams {
		return &problem{status: http.StatusTooManyRequests, header: "Retry-After", value: "10",
			message: fmt.Sprintf("you follow %d logs already: end one of them first", maxStreams)}
	}
	s.open[user]++
	return nil
}

func (s *streams) end(user string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[user]--; s.open[user] == 0 {
		delete(s.open, user)
	}
}
