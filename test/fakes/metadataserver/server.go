// Package metadataserver is the metadata server of a Compute Engine instance for tests: it holds requests until a value
// changes, as Google's does, and has the faults that Google's may have.
package metadataserver

import (
	"context"
	"errors"
	"hash/fnv"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
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
	s.server = &http.Server{Handler: http.HandlerFunc(s.answer), ReadHeaderTimeout: time.Minute}
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
	return append([]string(nil), s.etags...)
}

func (s *Server) change(change func()) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	change()
	close(s.changed)
	s.changed = make(chan struct{})
}

// state that a request sees, and what is closed when it changes.
func (s *Server) state(key string) (value string, there bool, fault Fault, changed chan struct{}) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	value, there = s.values[key]
	return value, there, s.fault, s.changed
}

func (s *Server) answer(w http.ResponseWriter, request *http.Request) {
	s.mutex.Lock()
	s.requests++
	if last := request.URL.Query().Get("last_etag"); last != "" {
		s.etags = append(s.etags, last)
	}
	s.mutex.Unlock()
	if request.Header.Get("Metadata-Flavor") != "Google" {
		http.Error(w, "Missing Metadata-Flavor:Google header.", http.StatusForbidden)
		return
	}
	key := strings.TrimPrefix(request.URL.Path, "/computeMetadata/v1/")
	ctx, cancel := held(request)
	defer cancel()
	for {
		value, there, fault, changed := s.state(key)
		switch fault {
		case Silent:
			s.hang(request.Context(), changed)
			continue
		case Reset:
			panic(http.ErrAbortHandler)
		case Foreign:
			http.NotFound(w, request)
			return
		}
		w.Header().Set("Metadata-Flavor", "Google")
		switch {
		case fault == Unavailable:
			http.Error(w, "try again", http.StatusServiceUnavailable)
			return
		case !there:
			http.NotFound(w, request)
			return
		}
		if fault != WithoutETag {
			w.Header().Set("ETag", etag(value))
			if request.URL.Query().Get("last_etag") == etag(value) && s.hang(ctx, changed) {
				continue
			}
		}
		w.Header().Set("Content-Type", "application/text")
		_, _ = w.Write([]byte(value)) // the client may have gone
		return
	}
}

// held is the context of a request that may hang, which ends when it has hung long enough.
func held(request *http.Request) (context.Context, context.CancelFunc) {
	query := request.URL.Query()
	seconds, err := strconv.Atoi(query.Get("timeout_sec"))
	if query.Get("wait_for_change") != "true" {
		seconds, err = 0, nil
	}
	if err != nil {
		return context.WithCancel(request.Context())
	}
	return context.WithTimeout(request.Context(), time.Duration(seconds)*time.Second)
}

// hang until something changed, and say whether that was so.
func (s *Server) hang(ctx context.Context, changed chan struct{}) bool {
	if ctx.Err() != nil {
		return false
	}
	s.count(1)
	defer s.count(-1)
	select {
	case <-changed:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *Server) count(n int) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.hanging += n
}

func etag(value string) string {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(value)) // never fails
	return strconv.FormatUint(sum.Sum64(), 16)
}
