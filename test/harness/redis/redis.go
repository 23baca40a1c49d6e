// Package redis starts a private redis-server (Debian's redis-server) for a test, on a loopback port, with its data in a folder of
// the test.
package redis

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	client "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/test/harness/process"
)

// Server is a redis-server.
type Server struct {
	*process.Server
	// Address is host:port, and URL what clients are told.
	Address, URL string

	folder string
}

// Option of a server.
type Option func(*[]string)

// AppendOnly lets the server write each change to its append-only file, so that it has its data again after it was killed
// (all but the last second).
func AppendOnly(arguments *[]string) {
	*arguments = append(*arguments, "--appendonly", "yes", "--appendfsync", "everysec")
}

// Start starts a server. Without options it keeps its data in memory only.
func Start(t testing.TB, options ...Option) *Server {
	t.Helper()
	folder := t.TempDir()
	address := process.FreePort(t, process.AnyPort)
	arguments := []string{"--dir", folder, "--save", "", "--daemonize", "no"}
	for _, option := range options {
		option(&arguments)
	}
	return start(t, folder, address, arguments...)
}

// start starts the program redis-server in any of its roles.
func start(t testing.TB, folder, address string, arguments ...string) *Server {
	t.Helper()
	program, err := exec.LookPath("redis-server")
	require.NoError(t, err, "install the Debian package redis-server")
	host, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	arguments = append(arguments, "--bind", host, "--port", port)
	s := &Server{Address: address, URL: "redis://" + address + "/0", folder: folder}
	s.Server = process.New(t, process.Options{
		Name:    "redis-server",
		Command: func() *exec.Cmd { return exec.Command(program, arguments...) },
		Ready: func() error {
			c := client.NewClient(&client.Options{Addr: address, MaxRetries: -1})
			defer func() { _ = c.Close() }()
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			err := c.Ping(ctx).Err()
			if client.HasErrorPrefix(err, "MASTERDOWN") { // a replica that answers
				return nil
			}
			return err
		},
		Log:  filepath.Join(folder, "log"),
		Stop: syscall.SIGTERM,
	})
	return s
}

// Forget removes what a stopped or killed server has on disk, so that it starts empty.
func (s *Server) Forget() error {
	return os.RemoveAll(filepath.Join(s.folder, "appendonlydir"))
}
