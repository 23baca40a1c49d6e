// Package postgres starts a private PostgreSQL (Debian's package postgresql) for a test, on a loopback port, with its data in a
// folder of the test.
package postgres

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/test/harness/process"
)

// Server is a PostgreSQL server with a database of the test.
type Server struct {
	*process.Server
	// Address is host:port, and URL what clients are told.
	Address, URL string
}

// Start makes an empty data folder, and starts a server on it. Settings are like "max_connections=50". Its commits are durable
// against a kill of its process, not against a loss of power: they are written, and not waited for (fsync=off), unless settings say
// otherwise.
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	folder := dataFolder(t)
	run := runner(t, folder)
	out, err := run("initdb", "-D", filepath.Join(folder, "data"), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync").CombinedOutput()
	require.NoError(t, err, "initdb: %s", out)

	return serve(t, folder, run, settings)
}

// StartReplica starts a standby of a server, whose queries see what it has replayed.
func StartReplica(t testing.TB, of *Server) *Server {
	t.Helper()
	folder := dataFolder(t)
	run := runner(t, folder)
	out, err := run("pg_basebackup", "-D", filepath.Join(folder, "data"), "-d", of.URL, "-R", "--no-sync", "--checkpoint=fast").CombinedOutput()
	require.NoError(t, err, "pg_basebackup: %s", out)
	return serve(t, folder, run, nil)
}

// runner makes commands of PostgreSQL's programs, by its own user.
func runner(t testing.TB, folder string) func(name string, arguments ...string) *exec.Cmd {
	owner := credential(t)
	return func(name string, arguments ...string) *exec.Cmd {
		command := exec.Command(program(t, name), arguments...)
		command.Dir = folder
		command.SysProcAttr = &syscall.SysProcAttr{Credential: owner}
		return command
	}
}

// serve starts the server of a data folder.
func serve(t testing.TB, folder string, run func(string, ...string) *exec.Cmd, settings []string) *Server {
	t.Helper()
	address := process.FreePort(t, process.AnyPort)
	host, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	arguments := []string{"-D", filepath.Join(folder, "data"), "-h", host, "-p", port, "-k", folder}
	for _, setting := range append([]string{"fsync=off"}, settings...) {
		arguments = append(arguments, "-c", setting)
	}
	url := "postgres://postgres@" + address + "/postgres?sslmode=disable"
	s := &Server{Address: address, URL: url}
	s.Server = process.New(t, process.Options{
		Name:    "postgres",
		Command: func() *exec.Cmd { return run("postgres", arguments...) },
		Ready: func() error {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			connection, err := pgx.Connect(ctx, url)
			if err != nil {
				return err
			}
			return connection.Close(ctx)
		},
		Log:  filepath.Join(folder, "log"),
		Stop: syscall.SIGINT, // fast: it does not wait for its clients
	})
	return s
}

// Kill ends the server and the processes that it has for its connections with SIGKILL: by themselves these go on for a moment, commit what
// they are asked to, and keep the server from being started again.
func (s *Server) Kill() {
	own := children(s.PID())
	s.Server.Kill()
	for _, pid := range own {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	// Their shared memory is in use until they are gone.
	for _, pid := range own {
		for deadline := time.Now().Add(10 * time.Second); syscall.Kill(pid, 0) == nil && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
	}
}

// children are the processes that a process has started.
func children(pid int) []int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return nil
	}
	var pids []int
	for _, field := range strings.Fields(string(text)) {
		if child, err := strconv.Atoi(field); err == nil {
			pids = append(pids, child)
		}
	}
	return pids
}

// dataFolder is not t.TempDir, below which only root may look.
func dataFolder(t testing.TB) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "postgres-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	if owner := credential(t); owner != nil {
		require.NoError(t, os.Chown(folder, int(owner.Uid), int(owner.Gid)))
	}
	return folder
}

// credential of the user that the package made: PostgreSQL refuses to run as root. Nil for any other user.
func credential(t testing.TB) *syscall.Credential {
	t.Helper()
	if os.Getuid() != 0 {
		return nil
	}
	owner, err := user.Lookup("postgres")
	require.NoError(t, err, "install the Debian package postgresql")
	uid, err := strconv.ParseUint(owner.Uid, 10, 32)
	require.NoError(t, err)
	gid, err := strconv.ParseUint(owner.Gid, 10, 32)
	require.NoError(t, err)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

// program of the newest version that is installed. The numbers of versions have two digits.
func program(t testing.TB, name string) string {
	t.Helper()
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	require.NoError(t, err)
	require.NotEmpty(t, found, "install the Debian package postgresql")
	return slices.Max(found)
}
