// Package metadataserver is the metadata server of a Compute Engine instance for tests: it holds requests until a value
// changes, as Google's does, and has the faults that Google's may have.
package metadataserver

import (
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Fault of the server in a request.
type Fault int

// The faults.
const (
	None Fault = iota
	// Unavailable: it answers 503.
	Unavailable
	// Reset: it closes the connection without an answer, those that hang as well.
	Reset
	// Silent: it answers nothing, and goes on to hang.
	Silent
	// Foreign: it answers as a server that is not Google's.
	Foreign
	// WithoutETag: it answers at once and names no version.
	WithoutETag
)

// Server of one instance. It begins as that of a healthy spot instance.
type Server struct {
	// URL to reach it at.
	URL string

	server  *http.Server
	serving chan error
	closing sync.Once

	mutex    sync.Mutex
	changed  chan struct{}
	values   map[string]string
	fault    Fault
	requests int
	hanging  int
	etags    []string
}

// Start a server at an address, such as 127.0.0.1:0.
func Start(address string) (*Server, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	s := &Server{
		URL: "http://" + listener.Addr().String(), serving: make(chan error, 1), changed: make(chan struct{}),
		values: map[string]string{"instance/preempted": "FALSE", "instance/maintenance-event": "NONE"},
	}
	s.server = &http.Server{Handler: Guard(http.HandlerFunc(s.answer)), ReadHeaderTimeout: time.Minute}
	go func() { s.serving <- s.server.Serve(listener) }()
	return s, nil
}

// Close ends the server and every connection, once.
func (s *Server) Close() error {
	var err error
	s.closing.Do(func() {
		err = s.server.Close()
		if ended := <-s.serving; !errors.Is(ended, http.ErrServerClosed) {
			err = errors.Join(err, ended)
		}
	})
	return err
}

// Set a key to a value, and return when that was: from then on it can be seen. An empty value takes the key away.
func (s *Server) Set(key, value string) time.Time {
	at := time.Now()
	s.change(func() {
		if value == "" {
			delete(s.values, key)
		} else {
			s.values[key] = value
		}
	})
	return at
}

// Have a fault in all requests from now on.
func (s *Server) Have(fault Fault) { s.change(func() { s.fault = fault }) }

// Requests so far.
func (s *Server) Requests() int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.requests
}

// Hanging requests now.
func (s *Server) Hanging() int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.hanging
}

// ETags that requests named as the last that they have seen.
func (s *Server) ETags() []string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return slices.Clone(s.etags)
}

func (s *Server) change(change func()) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	change()
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Server) answer(w http.ResponseWriter, request *http.Request) {
	s.mutex.Lock()
	s.requests++
	if last := request.URL.Query().Get("last_etag"); last != "" {
		s.etags = append(s.etags, last)
	}
	s.mutex.Unlock()
	key := strings.TrimPrefix(request.URL.Path, "/computeMetadata/v1/")
	read := func() Value {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		text, there := s.values[key]
		return Value{Text: text, Type: "application/text", Missing: !there, Fault: s.fault, Changed: s.changed}
	}
	Answer(w, request, clock.RealClock{}, read, func(more int) {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		s.hanging += more
	})
}
