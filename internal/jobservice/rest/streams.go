package rest

import (
	"fmt"
	"net/http"
	"sync"
)

// maxStreams of one user at a time: each holds a connection here, and one to the API server for every pod.
const maxStreams = 50

// streams are counted by user.
type streams struct {
	mu   sync.Mutex
	open map[string]int
}

// begin says whether a user may open another one; then end must be called.
func (s *streams) begin(user string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[user] >= maxStreams {
		return false
	}
	s.open[user]++
	return true
}

func (s *streams) end(user string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[user]--; s.open[user] == 0 {
		delete(s.open, user)
	}
}

func tooManyStreams() *problem {
	return &problem{status: http.StatusTooManyRequests, header: "Retry-After", value: "10",
		message: fmt.Sprintf("you follow %d logs already: end one of them first", maxStreams)}
}
