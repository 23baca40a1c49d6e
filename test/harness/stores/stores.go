// Package stores starts real object stores for tests: an S3 server (versitygw), fake-gcs-server, and Azurite. They listen where
// the test says, keep their data in a directory of the test, and are stopped by their process ids at the test's end at the
// latest. `make store-servers` builds and installs them.
package stores

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
	"github.com/dcnlab/spot-training-operator/test/harness/process"
)

// AnyPort as an address lets the server listen on a free port of the loopback address.
const AnyPort = process.AnyPort

// program finds a program that `make store-servers` puts into BIN.
func program(t testing.TB, name string) string {
	t.Helper()
	folder := os.Getenv("BIN")
	if folder == "" {
		folder = filepath.Join(apiserver.Root(), ".bin")
	}
	path := filepath.Join(folder, name)
	_, err := os.Stat(path)
	require.NoError(t, err, "run make store-servers first")
	return path
}

// start starts a server on an address. Stop ends it by a signal: SIGKILL, as if its machine had gone, unless it would lose its data
// by that.
func start(t testing.TB, name, address string, stop syscall.Signal, command func() *exec.Cmd) *process.Server {
	t.Helper()
	return process.New(t, process.Options{
		Name: name, Command: command, Stop: stop, Log: filepath.Join(t.TempDir(), name+".log"),
		Ready: func() error { return ask(address) },
	})
}

func ask(address string) error {
	answer, err := (&http.Client{Timeout: time.Second}).Get("http://" + address + "/")
	if err != nil {
		return err
	}
	return answer.Body.Close()
}
