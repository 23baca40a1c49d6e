package checks

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/dcnlab/spot-training-operator/scorecard/internal/cluster"
)

// serve starts a server of metrics that knows one token, and answers others with the code.
func serve(t *testing.T, otherwise int, body string) *httptest.Server {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer mine" {
			w.WriteHeader(otherwise)
			return
		}
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(server.Close)
	return server
}

func TestMetricsAreReadWithTheToken(t *testing.T) {
	server := serve(t, http.StatusUnauthorized, "# TYPE go_goroutines gauge\ngo_goroutines 7\n")
	e, err := newEndpoint(&rest.Config{BearerToken: "mine"}, server.URL)
	require.NoError(t, err)

	assert.NoError(t, e.refusesStrangers(t.Context()))
	families, err := e.scrape(t.Context())
	require.NoError(t, err)
	assert.Contains(t, families, "go_goroutines")
}

func TestMetricsForEverybodyFail(t *testing.T) {
	e, err := newEndpoint(&rest.Config{BearerToken: "mine"}, serve(t, http.StatusOK, "").URL)
	require.NoError(t, err)

	var failure *cluster.Failure
	require.ErrorAs(t, e.refusesStrangers(t.Context()), &failure)
	assert.ErrorContains(t, failure, "answers 200 to a client without credentials")
}

func TestMetricsThatCannotBeReadFail(t *testing.T) {
	var failure *cluster.Failure
	e, err := newEndpoint(&rest.Config{BearerToken: "another"}, serve(t, http.StatusForbidden, "").URL)
	require.NoError(t, err)
	_, err = e.scrape(t.Context())
	require.ErrorAs(t, err, &failure)
	assert.ErrorContains(t, err, "answers 403 to a client with the permission")

	e, err = newEndpoint(&rest.Config{BearerToken: "mine"}, serve(t, http.StatusForbidden, "<html>").URL)
	require.NoError(t, err)
	_, err = e.scrape(t.Context())
	require.ErrorAs(t, err, &failure)
	assert.ErrorContains(t, err, "is not in Prometheus' format")
}

func TestMetricsNeedAToken(t *testing.T) {
	_, err := newEndpoint(&rest.Config{}, "https://example.com/metrics")
	assert.ErrorContains(t, err, "run this test in a pod")
}
