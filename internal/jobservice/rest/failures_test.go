package rest_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/rest"
)

func TestHeaders(t *testing.T) {
	s := newService(t, newMemory())
	a := s.send(t, "GET", "/api/v1/health/live", noToken, "", "X-Request-ID", "my-request.1")
	assert.Equal(t, "my-request.1", a.header.Get("X-Request-ID"))
	assert.Equal(t, "nosniff", a.header.Get("X-Content-Type-Options"))
	assert.Equal(t, "no-store", a.header.Get("Cache-Control"))
	for _, bad := range []string{"two words", strings.Repeat("x", 129), `"quoted"`, "ünïcode"} {
		a = s.send(t, "GET", "/api/v1/health/live", noToken, "", "X-Request-ID", bad)
		assert.Regexp(t, `^r-[0-9a-z]+$`, a.header.Get("X-Request-ID"))
	}
	a = s.send(t, "PATCH", "/api/v1/jobs/", all, "")
	assert.Equal(t, "GET, HEAD, POST", a.header.Get("Allow"))
	a = s.send(t, "POST", "/api/v1/jobs/", all, `{"job_type":"inference"}`)
	assert.Equal(t, "/api/v1/jobs/"+a.json(t)["id"].(string), a.header.Get("Location"))
	a = s.send(t, "GET", "/api/v1/jobs/", noToken, "")
	assert.Equal(t, `Bearer realm="job-service"`, a.header.Get("WWW-Authenticate"))
	a = s.send(t, "GET", "/api/v1/jobs/", noToken, "", "Authorization", "Bearer a.b.c")
	assert.Contains(t, a.header.Get("WWW-Authenticate"), `error="invalid_token"`)
	a = s.send(t, "GET", "/api/v1/jobs/", writer, "")
	assert.Contains(t, a.header.Get("WWW-Authenticate"), `error="insufficient_scope", scope="jobs:read"`)
	a = s.send(t, "GET", "/api/v1/docs", noToken, "")
	assert.Contains(t, a.header.Get("Content-Security-Policy"), "default-src 'none'")
	assert.NotRegexp(t, `(src|href)="(https?:)?//`, string(a.body), "the page needs nothing from elsewhere")
	for _, item := range document().Paths.Map() {
		for _, operation := range item.Operations() {
			assert.Contains(t, string(a.body), `id="`+operation.OperationID+`"`)
		}
	}
	head := s.send(t, "HEAD", "/api/v1/jobs/", all, "")
	assert.Empty(t, head.body)
}

// What fails below is told as it is, and nothing of the inside gets out.
func TestFailures(t *testing.T) {
	store := newMemory()
	s := newService(t, store)
	id := s.submit(t, all, `{"job_type":"inference"}`)
	requests := []struct{ method, path, body string }{
		{"POST", "/jobs/", `{"job_type":"inference"}`}, {"POST", "/jobs/batch", `{"jobs":[{"job_type":"inference"}]}`}, {"GET", "/jobs/", ""},
		{"GET", "/jobs/" + id, ""}, {"DELETE", "/jobs/" + id, ""}, {"POST", "/jobs/" + id + "/requeue", ""}, {"GET", "/jobs/" + id + "/logs", ""},
		{"GET", "/queues/", ""}, {"GET", "/queues/inference", ""}, {"GET", "/metrics/", ""},
		{"POST", "/tasks/lease", `{"queue":"inference","worker_id":"w","wait_seconds":0}`}, {"POST", "/tasks/" + id + "/heartbeat", `{"lease_token":1}`},
		{"POST", "/tasks/" + id + "/complete", `{"lease_token":1}`}, {"POST", "/tasks/" + id + "/fail", `{"lease_token":1}`},
	}
	for _, failure := range []struct {
		err    error
		status int
		code   string
	}{
		{fmt.Errorf("%w: dial tcp 10.0.0.1:5432: password=secret", jobs.ErrUnavailable), 503, "SERVICE_UNAVAILABLE"},
		{errors.New("pq: secret detail"), 500, "INTERNAL_ERROR"},
	} {
		store.setFail(failure.err)
		for _, r := range requests {
			a := s.send(t, r.method, "/api/v1"+r.path, all, r.body)
			assert.Equal(t, failure.status, a.status, "%s %s: %s", r.method, r.path, a.body)
			code, _, _ := a.problem(t)
			assert.Equal(t, failure.code, code)
			assert.NotContains(t, string(a.body), "secret")
		}
	}
}

// What the service could lose it does not acknowledge; the rest of it works.
func TestAServiceThatCannotKeepJobsAcceptsNone(t *testing.T) {
	store := newMemory()
	kept := newService(t, store).submit(t, all, `{"job_type":"inference","retry_policy":{"max_retries":0}}`)
	const why = "the service accepts no jobs: set DATABASE_URL"
	s := newService(t, store, func(o *rest.Options) { o.RefuseJobs = why })
	for _, r := range []struct{ path, body string }{
		{"/jobs/", `{"job_type":"inference"}`}, {"/jobs/batch", `{"jobs":[{"job_type":"inference"}]}`}, {"/jobs/" + kept + "/requeue", ""},
	} {
		a := s.send(t, "POST", "/api/v1"+r.path, all, r.body)
		assert.Equal(t, http.StatusServiceUnavailable, a.status, r.path)
		code, _, message := a.problem(t)
		assert.Equal(t, "SERVICE_UNAVAILABLE "+why, code+" "+message)
		assert.Equal(t, "60", a.header.Get("Retry-After"))
		assert.Equal(t, http.StatusUnauthorized, s.send(t, "POST", "/api/v1"+r.path, noToken, r.body).status, r.path)
	}
	assert.Len(t, store.jobs, 1)
	for _, path := range []string{"/jobs/", "/jobs/" + kept, "/jobs/" + kept + "/logs", "/queues/", "/metrics/"} {
		assert.Equal(t, http.StatusOK, s.send(t, "GET", "/api/v1"+path, all, "").status, path)
	}
	id, fence := s.lease(t, "inference")
	a := s.send(t, "POST", "/api/v1/tasks/"+id+"/complete", all, fmt.Sprintf(`{"lease_token":%d}`, fence))
	assert.Equal(t, http.StatusOK, a.status, "%s", a.body)
	// A Deployment that is never ready would keep OLM from installing the operator, and readers from the Service.
	a = s.send(t, "GET", "/api/v1/health/ready", noToken, "")
	assert.Equal(t, http.StatusOK, a.status)
	assert.Equal(t, why, a.json(t)["message"])
}

func TestReadiness(t *testing.T) {
	store := newMemory()
	store.checks["redis"] = errors.New("dial tcp: password=secret")
	s := newService(t, store, func(o *rest.Options) { o.Kubernetes = &cluster{} })
	a := s.send(t, "GET", "/api/v1/health/ready", noToken, "")
	assert.Equal(t, http.StatusServiceUnavailable, a.status)
	assert.Equal(t, map[string]any{"status": "degraded", "checks": map[string]any{"database": "ok", "redis": "failed", "kubernetes": "ok"}}, a.json(t))
	assert.False(t, bytes.Contains(a.body, []byte("secret")))
}
