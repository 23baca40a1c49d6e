package secrets_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/dcnlab/spot-training-operator/test/harness/operator"
)

// patience bounds every wait for the manager.
const patience = 3 * time.Minute

// manager is the manager as a process that logs all it can.
type manager struct {
	log, metrics string
	stop         func()
}

func startManager(t *testing.T) *manager {
	t.Helper()
	folder := t.TempDir()
	program, kubeconfig := operator.Program(t), filepath.Join(folder, "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, server.kubeconfig, 0o600))
	m := &manager{log: filepath.Join(folder, "log"), metrics: freeAddress(t)}
	log, err := os.Create(m.log)
	require.NoError(t, err)
	defer log.Close()
	probes := freeAddress(t)
	command := exec.Command(program, "manager", "--log-level=debug", "--progress-interval=1s",
		"--metrics-secure=false", "--metrics-bind-address="+m.metrics, "--health-probe-bind-address="+probes)
	command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	command.Stdout, command.Stderr = log, log
	require.NoError(t, command.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = command.Wait() // how it ends is of no interest
	}()
	m.stop = func() {
		_ = command.Process.Signal(syscall.SIGTERM) // it may have ended
		select {
		case <-ended:
		case <-time.After(patience):
			_ = command.Process.Kill()
			<-ended
		}
	}
	t.Cleanup(func() {
		m.stop()
		if t.Failed() {
			lines := strings.Split(m.logged(t), "\n")
			t.Logf("the end of the manager's log:\n%s", strings.Join(lines[max(0, len(lines)-10):], "\n"))
		}
	})
	eventually(t, "the manager being ready", func(ctx context.Context) (bool, error) {
		return get(ctx, "http://"+probes+"/readyz") != "", nil
	})
	return m
}

func (m *manager) logged(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(m.log)
	require.NoError(t, err)
	return string(text)
}

// measured is what the manager tells Prometheus.
func (m *manager) measured(t *testing.T) string {
	t.Helper()
	text := get(t.Context(), "http://"+m.metrics+"/metrics")
	require.Contains(t, text, "trainingjob_reconciliation_total")
	return text
}

// get returns the body of a successful answer, else nothing.
func get(ctx context.Context, url string) string {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return ""
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		return ""
	}
	return string(text)
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

func eventually(t *testing.T, what string, happened func(context.Context) (bool, error)) {
	t.Helper()
	require.NoError(t, wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true, happened), "%s did not happen", what)
}
