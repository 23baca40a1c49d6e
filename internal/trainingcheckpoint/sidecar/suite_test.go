package sidecar_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/report"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/restore"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/sidecar"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/store"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/volume"
	"github.com/dcnlab/spot-training-operator/test/harness/stores"
)

// patience is how long a test waits for what must happen.
const patience = 45 * time.Second

const (
	bucket = "checkpoints"
	prefix = "team/ml/digits/uid-1"
)

// secret writes the keys of a Secret as kubelets mount them.
func secret(t *testing.T, values map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	mount(t, folder, values)
	return folder
}

func mount(t *testing.T, folder string, values map[string]string) {
	t.Helper()
	for key, value := range values {
		require.NoError(t, os.WriteFile(filepath.Join(folder, key), []byte(value), 0o600))
	}
}

// logs collects what an agent logs, to look for secrets in it.
type logs struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// in are settings of an agent with the directory of a training.
func in(t *testing.T, directory string) sidecar.Settings {
	t.Helper()
	listener, err := net.Listen("tcp", stores.AnyPort)
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	return sidecar.Settings{
		Settings:  restore.Settings{Directory: volume.Directory{Path: directory}, Log: slog.New(slog.NewJSONHandler(&logs{}, nil))},
		Retention: 3, Address: listener.Addr().String(), TerminationPath: filepath.Join(t.TempDir(), "termination-log"),
		Look: 200 * time.Millisecond, Backoff: 20 * time.Millisecond, MaxBackoff: 200 * time.Millisecond,
	}
}

// with are settings of an agent with an object store.
func with(t *testing.T, url string, values map[string]string) sidecar.Settings {
	t.Helper()
	s := in(t, filepath.Join(t.TempDir(), "digits", "uid-1"))
	s.Store = open(t, url, secret(t, values))
	return s
}

func open(t *testing.T, url, credentials string) *store.Store {
	t.Helper()
	opened, err := store.New(url, credentials)
	require.NoError(t, err)
	return opened
}

// running is an agent that runs.
type running struct {
	t        *testing.T
	settings sidecar.Settings
	logs     *logs
	cancel   context.CancelFunc
	ended    chan error
}

func start(t *testing.T, role func(context.Context, sidecar.Settings) error, s sidecar.Settings) *running {
	t.Helper()
	r := &running{t: t, settings: s, logs: &logs{}, ended: make(chan error, 1)}
	r.settings.Log = slog.New(slog.NewJSONHandler(r.logs, nil))
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go func() {
		defer close(r.ended)
		r.ended <- role(ctx, r.settings)
	}()
	t.Cleanup(func() {
		cancel()
		for deadline := time.After(5 * time.Second); ; { // it may try forever, where the kubelet would end it
			select {
			case _, more := <-r.ended:
				if more {
					continue
				}
			case <-deadline:
			}
			break
		}
		if t.Failed() {
			t.Logf("the agent's log:\n%s", r.logs)
		}
	})
	return r
}

// report asks the agent as the manager does.
func (r *running) report() (report.Report, bool) {
	answer, err := http.Get("http://" + r.settings.Address + report.StatusPath)
	if err != nil {
		return report.Report{}, false
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return report.Report{}, false
	}
	return report.Parse(text)
}

// eventually waits until the report is as it should be, and returns it.
func (r *running) eventually(what string, is func(report.Report) bool) report.Report {
	r.t.Helper()
	var last report.Report
	require.Eventually(r.t, func() bool {
		now, ok := r.report()
		if ok {
			last = now
		}
		return ok && is(now)
	}, patience, 20*time.Millisecond, "%s", what)
	return last
}

func problem(reason report.Reason) func(report.Report) bool {
	return func(r report.Report) bool { return r.Problem != nil && r.Problem.Reason == reason }
}

func newest(name string) func(report.Report) bool {
	return func(r report.Report) bool {
		return r.Newest != nil && filepath.Base(r.Newest.Path) == name && r.Problem == nil
	}
}

// request asks for a checkpoint as the manager does.
func (r *running) request(id string) int {
	r.t.Helper()
	answer, err := http.Post("http://"+r.settings.Address+report.RequestPath+"?id="+url.QueryEscape(id), "", nil)
	require.NoError(r.t, err)
	require.NoError(r.t, answer.Body.Close())
	return answer.StatusCode
}

// stop stops the agent as the kubelet does, and returns its termination message.
func (r *running) stop() report.Report {
	r.t.Helper()
	r.cancel()
	return r.end(nil)
}

// end waits until the agent ends.
func (r *running) end(want error) report.Report {
	r.t.Helper()
	select {
	case err := <-r.ended:
		require.ErrorIs(r.t, err, want)
	case <-time.After(patience):
		require.Fail(r.t, "the agent does not end")
	}
	text, err := os.ReadFile(r.settings.TerminationPath)
	require.NoError(r.t, err)
	require.LessOrEqual(r.t, len(text), report.MaxTerminationBytes)
	last, ok := report.Parse(text)
	require.True(r.t, ok, "%s", text)
	return last
}

// files of a checkpoint, by path.
type files map[string][]byte

// noise is content that is different for each seed.
func noise(seed uint64, size int) []byte {
	content := make([]byte, size)
	random := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16)})
	_, _ = random.Read(content)
	return content
}

// take writes a checkpoint as a training does: under a hidden name, then renamed.
func take(t *testing.T, directory, name string, epoch, step int, content files) {
	t.Helper()
	hidden := filepath.Join(directory, ".writing-"+name)
	lay(t, hidden, content)
	entries := []map[string]any{}
	for _, path := range slices.Sorted(maps.Keys(content)) {
		entries = append(entries, map[string]any{"path": path, "size": len(content[path]), "sha256": sumOf(content[path])})
	}
	text, err := json.Marshal(map[string]any{
		"version": 1, "name": name, "epoch": epoch, "step": step, "files": entries,
		"createdTime": time.Now().UTC().Format(time.RFC3339), "model": "cnn",
	})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(hidden, "manifest.json"), text, 0o644))
	require.NoError(t, os.Rename(hidden, filepath.Join(directory, name)))
}

func lay(t *testing.T, folder string, content files) {
	t.Helper()
	for path, text := range content {
		file := filepath.Join(folder, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o777))
		require.NoError(t, os.WriteFile(file, text, 0o644))
	}
}

// same checks that a checkpoint has these files, and a manifest.
func same(t *testing.T, folder string, content files) {
	t.Helper()
	for path, text := range content {
		got, err := os.ReadFile(filepath.Join(folder, path))
		require.NoError(t, err)
		require.True(t, string(text) == string(got), "%s differs", path)
	}
	require.FileExists(t, filepath.Join(folder, "manifest.json"))
}

func visible(t *testing.T, folder string) []string {
	t.Helper()
	names, err := volume.Directory{Path: folder}.Names()
	require.NoError(t, err)
	return names
}
