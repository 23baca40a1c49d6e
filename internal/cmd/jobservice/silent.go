package jobservice

import (
	"net"
	"net/http"
	"sync"
)

// silent are connections on which no request has come yet, as clients open them in advance. A server that shuts down would wait for
// them for seconds, though no client waits for an answer.
type silent struct {
	mu          sync.Mutex
	connections map[net.Conn]struct{}
}

// follow is the server's hook for the states of its connections.
func (s *silent) follow(connection net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state != http.StateNew {
		delete(s.connections, connection)
		return
	}
	if s.connections == nil {
		s.connections = map[net.Conn]struct{}{}
	}
	s.connections[connection] = struct{}{}
}

// close those that are silent still.
func (s *silent) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for connection := range s.connections {
		_ = connection.Close() // it is over either way
	}
}
