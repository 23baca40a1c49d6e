package jobservice_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/test/harness/jobservice"
	"github.com/dcnlab/spot-training-operator/test/harness/operator"
)

// python has PyTorch and NumPy; workers/run-tests.sh, which make test runs first, installs them.
const python = "/usr/bin/python3"

// worker of a queue: python3 with arguments, as it runs in a pod.
type worker struct {
	t       *testing.T
	command *exec.Cmd
	output  string
}

func startWorker(t *testing.T, s *jobservice.Service, queue string, args ...string) *worker {
	t.Helper()
	return startWorkerIn(t, nil, s, queue, args...)
}

// startWorkerIn an environment.
func startWorkerIn(t *testing.T, env []string, s *jobservice.Service, queue string, args ...string) *worker {
	t.Helper()
	folder := t.TempDir()
	token := filepath.Join(folder, "token")
	require.NoError(t, os.WriteFile(token, []byte(s.Token), 0o600))
	var packages []string
	for _, name := range []string{"pool", "inference", "simulation", "training"} {
		path, err := filepath.Abs(filepath.Join(root, "workers", name))
		require.NoError(t, err)
		packages = append(packages, path)
	}
	w := &worker{t, exec.Command(python, args...), filepath.Join(folder, "output")}
	output, err := os.Create(w.output)
	require.NoError(t, err)
	defer output.Close()
	w.command.Stdout, w.command.Stderr = output, output
	w.command.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "PYTHONPATH=" + strings.Join(packages, ":"), "PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1",
		"OMP_NUM_THREADS=1", "GLOO_SOCKET_IFNAME=lo", "JOB_SERVICE_URL=" + s.URL, "JOB_SERVICE_TOKEN_FILE=" + token, "QUEUE=" + queue,
		"METRICS_PORT=0", "WORK_DIR=" + filepath.Join(folder, "work"), "WORKER_ID=" + filepath.Base(folder), "LEASE_WAIT_SECONDS=2",
	}, env...)
	// Its own group, so that a training that it runs ends with it.
	w.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, w.command.Start())
	t.Cleanup(func() {
		w.kill()
		if t.Failed() {
			text, _ := os.ReadFile(w.output)
			t.Logf("the worker wrote:\n%s", text)
		}
	})
	return w
}

func (w *worker) kill() {
	if w.command.ProcessState == nil {
		_ = syscall.Kill(-w.command.Process.Pid, syscall.SIGKILL)
		_ = w.command.Wait()
	}
}

// terminate ends the worker as Kubernetes does.
func (w *worker) terminate() {
	w.t.Helper()
	require.NoError(w.t, w.command.Process.Signal(syscall.SIGTERM))
	require.NoError(w.t, w.command.Wait())
}

func task(jobType string, config map[string]any) map[string]any {
	return map[string]any{"job_type": jobType, "queue": "pool", "config": config, "retry_policy": map[string]any{"max_retries": 2}}
}

func TestPooledWorkersDoWhatTheServiceIsAskedFor(t *testing.T) {
	s := jobservice.Start(t, operator.Program(t), nil, "--data-dir="+filepath.Join(t.TempDir(), "data"))
	s.Token = s.PrintedToken()
	w := startWorker(t, s, "pool", "-m", "pool_worker")
	inference := s.Submit(task("inference", map[string]any{"indices": []int{0, 1, 2, 3}}))
	evaluation := s.Submit(task("evaluation", map[string]any{}))
	simulation := s.Submit(task("simulation", map[string]any{"sensor": "temperature", "duration_seconds": 600, "seed": 7}))
	training := s.Submit(task("training", map[string]any{"epochs": 2, "hyperparameters": map[string]any{"learningRate": 0.01}}))
	wrong := s.Submit(task("inference", map[string]any{"indices": []int{5000}, "modell": "x"}))

	result := s.AwaitStatus(inference, "succeeded")["result"].(map[string]any)
	assert.Equal(t, result["labels"], result["predictions"])
	result = s.AwaitStatus(evaluation, "succeeded")["result"].(map[string]any)
	assert.Greater(t, result["accuracy"], 0.97)
	result = s.AwaitStatus(simulation, "succeeded")["result"].(map[string]any)
	assert.EqualValues(t, 600, result["readings"])
	result = s.AwaitStatus(training, "succeeded")["result"].(map[string]any)
	assert.Greater(t, result["metrics"].(map[string]any)["accuracy"], 0.8)
	assert.DirExists(t, result["checkpoint"].(map[string]any)["path"].(string))
	failed := s.AwaitStatus(wrong, "failed")
	assert.Contains(t, failed["error"], "config.indices[0]: is 5000")
	assert.Contains(t, failed["error"], "config.modell: is unknown")
	w.terminate()
}

func TestATaskOutlivesItsWorkerAndTheService(t *testing.T) {
	s := jobservice.Start(t, operator.Program(t), nil, "--data-dir="+filepath.Join(t.TempDir(), "data"),
		"--visibility-timeout=2s", "--retry-backoff=100ms")
	s.Token = s.PrintedToken()
	long := task("simulation", map[string]any{"sensors": 50, "duration_seconds": 10_000, "seed": 1})

	first := startWorker(t, s, "pool", "-m", "pool_worker")
	id := s.Submit(long)
	s.AwaitStatus(id, "running")
	first.kill()
	second := startWorker(t, s, "pool", "-m", "pool_worker")
	again := func() bool {
		_, job := s.Ask(http.MethodGet, "/jobs/"+id, nil)
		return job["status"] == "running" && job["worker_id"] == filepath.Base(filepath.Dir(second.output))
	}
	require.Eventually(t, again, patience, 20*time.Millisecond, "another worker takes the task")

	// The service ends as in a crash and comes back within the lease: the worker goes on, and its result is taken.
	s.Kill()
	s.Restart()
	result := s.AwaitStatus(id, "succeeded")["result"].(map[string]any)
	assert.EqualValues(t, 50_000_000, result["readings"])

	id = s.Submit(long)
	s.AwaitStatus(id, "running")
	s.Must(http.StatusOK, http.MethodDelete, "/jobs/"+id, nil)
	short := s.Submit(task("simulation", map[string]any{"duration_seconds": 1}))
	s.AwaitStatus(short, "succeeded") // by the same worker, which has stopped the cancelled one
	second.terminate()
}

// stumbling is an address of a service that fails the first time that each thing is asked of it.
func stumbling(t *testing.T, s *jobservice.Service) *jobservice.Service {
	t.Helper()
	behind, err := url.Parse(s.URL)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(behind)
	var known sync.Map
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, again := known.LoadOrStore(r.URL.Path, true); !again {
			http.Error(w, "an outage", http.StatusServiceUnavailable)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.CloseClientConnections)
	return &jobservice.Service{URL: server.URL, Token: s.Token, Client: http.DefaultClient}
}

// The guide's own worker does what the guide says.
func TestTheWorkersOfTheGuideWork(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "guide", "platform-workers.md"))
	require.NoError(t, err)
	programs := regexp.MustCompile("(?s)```python\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	require.Len(t, programs, 2)
	s := jobservice.Start(t, operator.Program(t), nil, "--data-dir="+filepath.Join(t.TempDir(), "data"))
	s.Token = s.PrintedToken()
	for i, name := range []string{"without any package", "with the package"} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "worker.py")
			require.NoError(t, os.WriteFile(file, []byte(programs[i][1]), 0o600))
			w := startWorker(t, stumbling(t, s), "pool", file)
			good := s.Submit(task("simulation", map[string]any{"number": 21}))
			bad := s.Submit(task("simulation", map[string]any{}))
			assert.Equal(t, map[string]any{"doubled": 42.0}, s.AwaitStatus(good, "succeeded")["result"])
			assert.Contains(t, s.AwaitStatus(bad, "failed")["error"], "number")

			// It ends once it is told to, and no request of it is under way.
			require.NoError(t, w.command.Process.Signal(syscall.SIGTERM))
			s.Submit(task("simulation", map[string]any{"number": 1}))
			require.NoError(t, w.command.Wait())
		})
	}
}
