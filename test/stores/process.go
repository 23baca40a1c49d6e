// Package stores starts real object stores for tests: an S3 server (versitygw), fake-gcs-server, and Azurite. They listen where
// the test says, keep their data in a directory of the test, and are stopped by their process ids at the test's end at the
// latest. `make store-servers` builds and installs them.
package stores

import (
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// AnyPort as an address lets the server listen on a free port of the loopback address.
const AnyPort = "127.0.0.1:0"

// program finds a program that `make store-servers` puts into BIN.
func program(t testing.TB, name string) string {
	t.Helper()
	folder := os.Getenv("BIN")
	if folder == "" {
		_, here, _, _ := runtime.Caller(0)
		folder = filepath.Join(filepath.Dir(here), "..", "..", ".bin")
	}
	path := filepath.Join(folder, name)
	_, err := os.Stat(path)
	require.NoError(t, err, "run make store-servers first")
	return path
}

// server is a server process that can be stopped and started again with its data.
type server struct {
	t       testing.TB
	name    string
	address string
	log     string
	command func() *exec.Cmd
	// gently stops it in a way that lets it write down what it has only in memory.
	gently bool

	process *os.Process
	ended   chan struct{}
}

func newServer(t testing.TB, name, address string, command func() *exec.Cmd) *server {
	t.Helper()
	s := &server{t: t, name: name, address: address, log: filepath.Join(t.TempDir(), name+".log"), command: command}
	t.Cleanup(func() {
		s.Stop()
		if t.Failed() {
			text, _ := os.ReadFile(s.log)
			t.Logf("the end of the log of %s:\n%s", name, text[max(0, len(text)-4000):])
		}
	})
	s.Start()
	return s
}

// Start starts the server again after Stop, and waits until it answers.
func (s *server) Start() {
	s.t.Helper()
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	require.NoError(s.t, err)
	defer func() { _ = log.Close() }()
	command := s.command()
	command.Stdout, command.Stderr = log, log
	// It ends with the test, even when that is killed.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	ended := make(chan struct{})
	go func() {
		runtime.LockOSThread() // Pdeathsig is about the thread that started it
		err := command.Start()
		started <- err
		if err == nil {
			_ = command.Wait()
		}
		close(ended)
	}()
	require.NoError(s.t, <-started)
	s.process, s.ended = command.Process, ended
	require.Eventually(s.t, func() bool {
		select {
		case <-ended:
			return true
		default:
		}
		return answers(s.address)
	}, time.Minute, 20*time.Millisecond, "%s does not answer", s.name)
	select {
	case <-ended:
		text, _ := os.ReadFile(s.log)
		require.Fail(s.t, s.name+" has ended at once", string(text))
	default:
	}
}

func answers(address string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/", http.NoBody)
	if err != nil {
		return false
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	_ = answer.Body.Close()
	return true
}

// Stop stops the server at once, as if its machine had gone, unless it would lose its data by that.
func (s *server) Stop() {
	if s.process == nil {
		return
	}
	if s.gently {
		_ = syscall.Kill(-s.process.Pid, syscall.SIGTERM)
		select {
		case <-s.ended:
		case <-time.After(10 * time.Second):
		}
	}
	_ = syscall.Kill(-s.process.Pid, syscall.SIGKILL)
	<-s.ended
	s.process = nil
}

// listenAddress replaces port 0 by a free port.
func listenAddress(t testing.TB, address string) string {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}
