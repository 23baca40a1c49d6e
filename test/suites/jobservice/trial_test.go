package jobservice_test

import (
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/test/harness/jobservice"
	"github.com/dcnlab/spot-training-operator/test/harness/operator"
)

// token signs one with the subcommand.
func token(t *testing.T, program string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), program, append([]string{"job-service", "token"}, args...)...)
	command.Env = append(command.Environ(), "JOB_SERVICE_HMAC_SECRET="+secret)
	output, err := command.Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(output))
}

// pooled is a job that a worker leases.
func pooled() map[string]any {
	return map[string]any{"job_type": "inference", "config": map[string]any{"text": "hello"}}
}

func TestATrialNeedsNothing(t *testing.T) {
	program := operator.Program(t)
	folder := filepath.Join(t.TempDir(), "data")
	s := jobservice.Start(t, program, nil, "--data-dir="+folder)
	s.Token = s.PrintedToken()
	id := s.Submit(pooled())
	lease := s.Must(http.StatusOK, http.MethodPost, "/tasks/lease", map[string]any{"queue": "inference", "worker_id": "w", "wait_seconds": 5})
	task := lease["tasks"].([]any)[0].(map[string]any)
	assert.Equal(t, id, task["id"])

	s.Kill()
	s.Restart()
	s.Must(http.StatusOK, http.MethodPost, "/tasks/"+id+"/complete", map[string]any{
		"lease_token": task["lease_token"], "result": map[string]any{"label": "positive"},
	})
	assert.Equal(t, map[string]any{"label": "positive"}, s.AwaitStatus(id, "succeeded")["result"])

	t.Run("the subcommand signs further tokens with its secret", func(t *testing.T) {
		output, err := exec.CommandContext(t.Context(), program, "job-service", "token", "--data-dir="+folder, "--scope=jobs:read").Output()
		require.NoError(t, err)
		s.Token = strings.TrimSpace(string(output))
		s.Must(http.StatusOK, http.MethodGet, "/jobs/"+id, nil)
		s.Must(http.StatusForbidden, http.MethodPost, "/jobs/", pooled())
	})
	t.Run("no token, no answer", func(*testing.T) {
		s.Token = ""
		s.Must(http.StatusUnauthorized, http.MethodGet, "/jobs/"+id, nil)
	})
}

// As after an installation: no database, no claim.
func TestInAPodWithoutADatabaseNoJobIsAccepted(t *testing.T) {
	program := operator.Program(t)
	s := jobservice.Start(t, program, []string{"KUBERNETES_SERVICE_HOST=127.0.0.1", "JOB_SERVICE_HMAC_SECRET=" + secret},
		"--kubernetes=false", "--data-dir="+t.TempDir())
	s.Token = token(t, program)
	answer := s.Must(http.StatusServiceUnavailable, http.MethodPost, "/jobs/", pooled())
	assert.Contains(t, answer["error"].(map[string]any)["message"], "set DATABASE_URL and REDIS_URL")
	s.Must(http.StatusOK, http.MethodGet, "/jobs/", nil)
	assert.Contains(t, s.Must(http.StatusOK, http.MethodGet, "/health/ready", nil)["message"], "accepts no jobs")
	assert.Contains(t, s.Output(), "Jobs are refused")
}

func TestTheServiceEndsInOrder(t *testing.T) {
	program := operator.Program(t)
	s := jobservice.Start(t, program, nil, "--data-dir="+t.TempDir())
	s.Token = s.PrintedToken()
	answered := make(chan int, 1)
	go func() {
		status, _ := s.Ask(http.MethodPost, "/tasks/lease", map[string]any{"queue": "inference", "worker_id": "w", "wait_seconds": 30})
		answered <- status
	}()
	require.Eventually(t, func() bool {
		status, answer := s.Ask(http.MethodGet, "/queues/", nil)
		return status == http.StatusOK && answer != nil
	}, patience, 50*time.Millisecond)
	require.NoError(t, s.Stop(20*time.Second), "a worker that waits does not hold up the end")
	assert.Contains(t, []int{http.StatusOK, http.StatusServiceUnavailable, 0}, <-answered)
}

func TestWrongFlagsAreRefusedByName(t *testing.T) {
	program := operator.Program(t)
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"half of a certificate":  {[]string{"--tls-cert-file=x"}, "--tls-cert-file, --tls-key-file: one is set without the other"},
		"half of the servers":    {[]string{"--database-url=postgres://x"}, "--database-url, --redis-url: one is set without the other"},
		"no such mode":           {[]string{"--kubernetes=maybe"}, `--kubernetes: "maybe" is none of auto, true and false`},
		"a limit below nothing":  {[]string{"--rate-limit-create=-1"}, "--rate-limit-create: -1 is less than 0"},
		"a lease of no time":     {[]string{"--visibility-timeout=1ms"}, "--visibility-timeout: 1ms is less than 1s"},
		"no such level":          {[]string{"--log-level=loud"}, `--log-level: "loud" is none of debug, info, warn and error`},
		"a secret that is short": {[]string{"--trial", "--hmac-secret-file=short"}, "--hmac-secret-file"},
		"metrics, no cluster":    {[]string{"--metrics-secure", "--kubernetes=false"}, "--metrics-secure: needs Kubernetes"},
		"keys by plain HTTP":     {[]string{"--jwks=http://issuer.example.com/keys", "--token-audience=jobs"}, "use https, or a file"},
		"keys for any audience":  {[]string{"--jwks=https://issuer.example.com/keys"}, "--jwks: needs --token-audience"},
		"an address in use":      {[]string{"--bind-address=nowhere:99999"}, "--bind-address"},
	} {
		t.Run(name, func(t *testing.T) {
			command := exec.CommandContext(t.Context(), program, append([]string{"job-service", "--data-dir=" + t.TempDir()}, test.args...)...)
			output, err := command.CombinedOutput()
			require.Error(t, err)
			assert.Contains(t, string(output), test.want)
		})
	}
}
