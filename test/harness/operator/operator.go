// Package operator builds the operator's program for tests, once for all packages of a checkout.
package operator

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
)

// Program returns the path of the operator's program, built from the sources as they are.
func Program(t testing.TB) string {
	t.Helper()
	path, err := program()
	require.NoError(t, err)
	return path
}

// Shipped returns that of the program as a release has it.
func Shipped(t testing.TB) string {
	t.Helper()
	path, err := build("manager", "-trimpath", "-tags=disable_grpc_modules,grpcnotrace", "-ldflags=-s -w")
	require.NoError(t, err)
	return path
}

var program = sync.OnceValues(func() (string, error) { return build("spot-training-operator") })

func build(name string, flags ...string) (string, error) {
	root := apiserver.Root()
	folder := filepath.Join(root, ".localcluster", "test")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	lock, err := os.Create(filepath.Join(folder, "lock"))
	if err != nil {
		return "", err
	}
	defer lock.Close()
	// Packages are tested by processes of their own. The go command links only once what has not changed.
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	path := filepath.Join(folder, name)
	arguments := append([]string{"build", "-C", root, "-buildvcs=false", "-o", path}, flags...)
	command := exec.Command("go", append(arguments, ".")...)
	command.Env = append(os.Environ(), "CGO_ENABLED=0") // as all else is compiled; the race detector, which needs cgo, has it set to 1
	command.Stdout, command.Stderr = os.Stderr, os.Stderr
	return path, command.Run()
}
