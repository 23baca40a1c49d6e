package runner

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/auth"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/rest"
)

// lastSubmitted is a store that only remembers what was submitted last.
type lastSubmitted struct {
	jobs.Store
	job *jobs.Job
}

func (l *lastSubmitted) Submit(_ context.Context, submitted []*jobs.Job) ([]int, error) {
	l.job = submitted[0]
	l.job.ID, l.job.Status, l.job.CreatedAt = uuid.Must(uuid.NewV7()).String(), jobs.Queued, time.Now()
	return make([]int, len(submitted)), nil
}

func (l *lastSubmitted) Audit(context.Context, jobs.AuditEntry) error { return nil }

// Whatever REST accepts the API server accepts as an AIJob: a job that was acknowledged does not fail for how it is written.
func TestSubmissionsAreAIJobs(t *testing.T) {
	w := newWorld(t)
	secret := []byte("0123456789abcdef0123456789abcdef")
	authenticator, err := auth.New(auth.Options{Secrets: [][]byte{secret}})
	require.NoError(t, err)
	bearer, err := auth.Sign(secret, auth.Claims{
		RegisteredClaims: jwt.RegisteredClaims{Subject: "alice", ExpiresAt: jwt.NewNumericDate(time.Now().Add(time.Hour))},
		Scope:            auth.ScopeWrite, Namespaces: auth.Texts{w.namespace},
	})
	require.NoError(t, err)
	last := &lastSubmitted{}
	handler := rest.New(rest.Options{Store: last, Authenticator: authenticator, Log: logr.Discard()})

	random := rand.New(rand.NewPCG(6, 5))
	pick := func(values ...any) any { return values[random.IntN(len(values))] }
	maybe := func(object map[string]any, name string, values ...any) {
		if random.IntN(3) > 0 {
			object[name] = pick(values...)
		}
	}
	raw := func(text string) any { return json.RawMessage(text) }
	accepted := 0
	for range 300 {
		resources, gang, retry := map[string]any{}, map[string]any{}, map[string]any{}
		maybe(resources, "cpu", "0", "500m", "4", 1.5, "1n", "1e3", "0.0001", "3E2", "999999999999", "1Ki", 0, raw("1e2"), "+1", ".5")
		maybe(resources, "memory", "0", "1", "8Gi", "1.5Gi", "128974848", "129e6", "123Mi", 1073741824, "9223372036854775807", "1m", "1E")
		maybe(resources, "gpu", 0, 1, 8, 1024, nil)
		maybe(gang, "enabled", true, false, true, nil)
		maybe(gang, "min_members", 0, 1, 2, 1000, 4)
		maybe(gang, "topology", "topology.kubernetes.io/zone", "rack", "", "A.b_c/d", "a/B", "zone")
		maybe(retry, "max_retries", 0, 1, 100)
		maybe(retry, "backoff_multiplier", 1, 10, 1.5, 2.000001, raw("1e1"))
		job := map[string]any{
			"job_type": pick("inference", "training", "simulation", "evaluation"),
			"image":    pick("registry.example.com/a:v1", "a", "UPPER", "x@sha256:abc", strings.Repeat("i", 1024), "~!$%^&*()[]{}"),
		}
		maybe(job, "priority", 0, 50, 100)
		maybe(job, "config", map[string]any{}, map[string]any{"a": []any{1, "2", nil, map[string]any{"": true}}, "日本": "😀"},
			raw(`{"n":12345678901234567890,"f":1e308,"z":-0.0,"s":"\u001f\u2028<>&"}`), raw(`{"a":`+strings.Repeat(`[`, 62)+strings.Repeat(`]`, 62)+`}`),
			map[string]any{"large": strings.Repeat("x", 60<<10)}, raw(`{"twice":1,"twice":2}`))
		maybe(job, "resources", resources)
		maybe(job, "gang", gang)
		maybe(job, "retry_policy", retry)
		maybe(job, "timeout_seconds", 1, 3600, 31622400)
		maybe(job, "queue", "q", strings.Repeat("q", 63), "0", "a-b")
		body, err := json.Marshal(job)
		require.NoError(t, err)

		request := httptest.NewRequest(http.MethodPost, "/api/v1/jobs/", strings.NewReader(string(body)))
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Authorization", "Bearer "+bearer)
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, request)
		if recorder.Code != http.StatusCreated {
			require.Equal(t, http.StatusBadRequest, recorder.Code, "%s", recorder.Body)
			continue
		}
		accepted++
		aijob, err := newAIJob(last.job, last.job.Queue)
		require.NoError(t, err, "%s", body)
		assert.NoError(t, w.cluster.direct.Create(t.Context(), aijob, client.DryRunAll), "%.2000s", body)
	}
	assert.Greater(t, accepted, 80, "enough of them were right")
}
