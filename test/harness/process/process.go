// Package process runs one server of a test: it can be stopped, killed with its data left as they are, and started again. It ends
// by its process id, at the test's end at the latest.
package process

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Server is a process that listens on an address.
type Server struct {
	t       testing.TB
	options Options
	process *os.Process
	ended   chan struct{}
	result  error // of the process, once it has ended
}

// AnyPort as an address is a free port of the loopback address.
const AnyPort = "127.0.0.1:0"

// Options of a server.
type Options struct {
	// Name in messages.
	Name string
	// Command makes the command for each start.
	Command func() *exec.Cmd
	// Ready says why the server does not answer yet.
	Ready func() error
	// Log is the file that its output goes to.
	Log string
	// Stop is the signal that ends it in order.
	Stop syscall.Signal
}

// New makes a server, and starts it.
func New(t testing.TB, options Options) *Server {
	t.Helper()
	s := &Server{t: t, options: options}
	t.Cleanup(func() {
		s.Kill()
		if t.Failed() {
			text, _ := os.ReadFile(s.options.Log)
			t.Logf("the end of the log of %s:\n%s", s.options.Name, text[max(0, len(text)-4000):])
		}
	})
	s.Start()
	return s
}

// Start starts the server, and waits until it answers.
func (s *Server) Start() {
	s.t.Helper()
	require.NoError(s.t, s.TryStart())
}

// TryStart is Start for other goroutines than the test's own.
func (s *Server) TryStart() error {
	log, err := os.OpenFile(s.options.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	command := s.options.Command()
	command.Stdout, command.Stderr = log, log
	if command.SysProcAttr == nil {
		command.SysProcAttr = &syscall.SysProcAttr{}
	}
	// It ends with the test, even when that is killed.
	command.SysProcAttr.Setpgid, command.SysProcAttr.Pdeathsig = true, syscall.SIGKILL
	started := make(chan error, 1)
	ended := make(chan struct{})
	go func() {
		runtime.LockOSThread() // Pdeathsig is about the thread that started it
		err := command.Start()
		started <- err
		if err == nil {
			s.result = command.Wait()
		}
		close(ended)
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", s.options.Name, err)
	}
	s.process, s.ended = command.Process, ended
	deadline := time.Now().Add(3 * time.Minute) // a busy machine may take one
	for {
		if err = s.options.Ready(); err == nil {
			return nil
		}
		select {
		case <-ended:
			return fmt.Errorf("%s ended: see %s", s.options.Name, s.options.Log)
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s does not answer: %w", s.options.Name, err)
		}
	}
}

// Stop ends the server in order, and waits for its end.
func (s *Server) Stop() { _ = s.StopWithin(30 * time.Second) }

// StopWithin is Stop, and returns how the server ended, or that it took longer.
func (s *Server) StopWithin(limit time.Duration) error {
	if s.process == nil {
		return nil
	}
	defer s.Kill()
	_ = s.process.Signal(s.options.Stop)
	select {
	case <-s.ended:
		return s.result
	case <-time.After(limit):
	}
	_ = s.process.Signal(syscall.SIGQUIT) // a program in Go says what it is waiting for
	select {
	case <-s.ended:
	case <-time.After(10 * time.Second):
	}
	return fmt.Errorf("%s does not end within %s: see %s", s.options.Name, limit, s.options.Log)
}

// Ended says whether the server has ended, by itself or by a test.
func (s *Server) Ended() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// PID of the process; 0: it does not run.
func (s *Server) PID() int {
	if s.process == nil {
		return 0
	}
	return s.process.Pid
}

// Freeze has the server do nothing, with its connections open, until Thaw.
func (s *Server) Freeze() error { return s.process.Signal(syscall.SIGSTOP) }

// Thaw lets a frozen server go on.
func (s *Server) Thaw() error { return s.process.Signal(syscall.SIGCONT) }

// Kill ends the server with SIGKILL, and waits for its end.
func (s *Server) Kill() {
	if s.process == nil {
		return
	}
	_ = s.process.Kill() // it may have ended
	<-s.ended
	s.process = nil
}

// FreePort replaces port 0 of an address by one that no program listens on, and that the kernel gives to no connection: it is there
// too for a server that is started again.
func FreePort(t testing.TB, address string) string {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	for port == "0" {
		free := net.JoinHostPort(host, strconv.Itoa(20000+rand.IntN(10000)))
		if listener, err := net.Listen("tcp", free); err == nil {
			require.NoError(t, listener.Close())
			return free
		}
	}
	return address
}
