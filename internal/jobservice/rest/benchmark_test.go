package rest_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/auth"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/rest"
	"github.com/dcnlab/spot-training-operator/internal/metrics"
)

// instant is a store that takes no time, so that the REST interface is measured alone.
type instant struct{ *forgetful }

func (instant) Audit(context.Context, jobs.AuditEntry) error { return nil }

const typical = `{"job_type":"inference","priority":80,"config":{"prompt":"Summarize the following text","max_tokens":256,"temperature":0.7},` +
	`"resources":{"cpu":"2","memory":"8Gi","gpu":1},"timeout_seconds":600,"retry_policy":{"max_retries":3,"backoff_multiplier":2}}`

func benchmarked(b *testing.B) (http.Handler, string) {
	b.Helper()
	authenticator, err := auth.New(auth.Options{Secrets: [][]byte{secret}})
	require.NoError(b, err)
	return rest.New(rest.Options{
		Store: instant{&forgetful{newMemory()}}, Authenticator: authenticator, Log: logr.Discard(),
		Metrics: metrics.NewJobService(prometheus.NewRegistry()), Limits: rest.Limits{Create: 1 << 30},
	}), token(b, all)
}

func post(path, bearer, body string) (*httptest.ResponseRecorder, *http.Request) {
	request := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+bearer)
	return httptest.NewRecorder(), request
}

// BenchmarkSubmission is what a submission costs the REST interface itself, without the connection.
func BenchmarkSubmission(b *testing.B) {
	handler, bearer := benchmarked(b)
	b.ReportAllocs()
	for b.Loop() {
		recorder, request := post("/api/v1/jobs/", bearer, typical)
		handler.ServeHTTP(recorder, request)
		if recorder.Code != http.StatusCreated {
			b.Fatal(recorder.Body)
		}
	}
}

// BenchmarkRequestAlone is what BenchmarkSubmission spends on making its request.
func BenchmarkRequestAlone(b *testing.B) {
	_, bearer := benchmarked(b)
	b.ReportAllocs()
	for b.Loop() {
		recorder, _ := post("/api/v1/jobs/", bearer, typical)
		recorder.WriteHeader(http.StatusCreated)
	}
}

// BenchmarkBatch is what a job of a batch costs.
func BenchmarkBatch(b *testing.B) {
	handler, bearer := benchmarked(b)
	body := `{"jobs":[` + strings.Repeat(typical+",", 999) + typical + "]}"
	b.ReportAllocs()
	for b.Loop() {
		recorder, request := post("/api/v1/jobs/batch", bearer, body)
		handler.ServeHTTP(recorder, request)
		if recorder.Code != http.StatusCreated {
			b.Fatal(recorder.Body)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/job")
}
