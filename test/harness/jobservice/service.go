// Package jobservice runs the job service as the program that it is, and asks it over HTTP.
package jobservice

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/test/harness/process"
)

// patience bounds every wait.
const patience = 3 * time.Minute

// Service is one that is or was running.
type Service struct {
	// URL without a path, for example http://127.0.0.1:8000.
	URL string
	// Token of the requests.
	Token string
	// Client of the requests.
	Client *http.Client

	t       testing.TB
	output  string
	process *process.Server
}

// Start the service with further arguments and variables of the environment, and wait until it is ready. It ends with the test.
func Start(t testing.TB, program string, env []string, args ...string) *Service {
	t.Helper()
	return start(t, "http://", http.DefaultClient, program, env, args...)
}

// StartTLS does the same where the arguments have it serve HTTPS, which the client trusts.
func StartTLS(t testing.TB, client *http.Client, program string, env []string, args ...string) *Service {
	t.Helper()
	return start(t, "https://", client, program, env, args...)
}

func start(t testing.TB, scheme string, client *http.Client, program string, env []string, args ...string) *Service {
	t.Helper()
	address := process.FreePort(t, process.AnyPort)
	s := &Service{URL: scheme + address, Client: client, t: t, output: filepath.Join(t.TempDir(), "output")}
	s.process = process.New(t, process.Options{
		Name: "job-service", Log: s.output, Stop: syscall.SIGTERM,
		Command: func() *exec.Cmd {
			command := exec.Command(program, append([]string{"job-service", "--bind-address=" + address, "--metrics-bind-address=0"}, args...)...)
			// It finds nothing by itself.
			command.Env = append(os.Environ(), "KUBECONFIG=", "DATABASE_URL=", "DATABASE_REPLICA_URL=", "REDIS_URL=", "JOB_SERVICE_HMAC_SECRET=", "KUBERNETES_SERVICE_HOST=")
			command.Env = append(command.Env, env...)
			return command
		},
		Ready: func() error {
			if status, answer := s.AskText(http.MethodGet, "/health/ready", nil); status != http.StatusOK {
				return fmt.Errorf("status %d: %s", status, answer)
			}
			return nil
		},
	})
	return s
}

// Restart starts the service again, as it was, and waits until it is ready.
func (s *Service) Restart() {
	s.t.Helper()
	s.process.Start()
}

// Kill the service, as a crash would.
func (s *Service) Kill() { s.process.Kill() }

// Stop the service as Kubernetes does, and return how it ended.
func (s *Service) Stop(within time.Duration) error { return s.process.StopWithin(within) }

// Output is what the service has written, the printed token included.
func (s *Service) Output() string {
	text, err := os.ReadFile(s.output)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// PrintedToken is that of a trial.
func (s *Service) PrintedToken() string {
	s.t.Helper()
	for line := range strings.SplitSeq(s.Output(), "\n") {
		if token, ok := strings.CutPrefix(line, "export JOB_SERVICE_TOKEN="); ok {
			return token
		}
	}
	require.Fail(s.t, "no token was printed", s.Output())
	return ""
}

// Ask for a path below /api/v1. The answer is nil when it is no JSON object; status 0: there was none.
func (s *Service) Ask(method, path string, body any) (status int, answer map[string]any) {
	status, text := s.AskText(method, path, body)
	if json.Unmarshal([]byte(text), &answer) != nil {
		return status, nil
	}
	return status, answer
}

// AskText is the same for any answer.
func (s *Service) AskText(method, path string, body any) (status int, answer string) {
	s.t.Helper()
	content := io.Reader(http.NoBody)
	if body != nil {
		text, err := json.Marshal(body)
		require.NoError(s.t, err)
		content = bytes.NewReader(text)
	}
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	request, err := http.NewRequestWithContext(ctx, method, s.URL+"/api/v1"+path, content)
	require.NoError(s.t, err)
	request.Header.Set("Content-Type", "application/json")
	if s.Token != "" {
		request.Header.Set("Authorization", "Bearer "+s.Token)
	}
	response, err := s.Client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(text)
}

// Must ask, and have an answer with a status.
func (s *Service) Must(want int, method, path string, body any) map[string]any {
	s.t.Helper()
	status, answer := s.Ask(method, path, body)
	require.Equal(s.t, want, status, "%s %s: %v", method, path, answer)
	return answer
}

// Submit a job and return its ID.
func (s *Service) Submit(job map[string]any) string {
	s.t.Helper()
	return s.Must(http.StatusCreated, http.MethodPost, "/jobs/", job)["id"].(string)
}

// AwaitStatus waits until a job has a status, and returns the job.
func (s *Service) AwaitStatus(id, status string) map[string]any {
	s.t.Helper()
	var job map[string]any
	require.Eventually(s.t, func() bool {
		_, job = s.Ask(http.MethodGet, "/jobs/"+id, nil)
		return job["status"] == status
	}, patience, 50*time.Millisecond, "the job does not become %s", status)
	return job
}
