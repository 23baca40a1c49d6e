package jobservice

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientrest "k8s.io/client-go/rest"
)

func TestAClientOfTheMetricsHoldsNoConnectionForLong(t *testing.T) {
	server := metricsServer(http.NotFoundHandler())
	for name, timeout := range map[string]time.Duration{
		"headers": server.ReadHeaderTimeout, "request": server.ReadTimeout, "answer": server.WriteTimeout, "connection": server.IdleTimeout,
	} {
		assert.True(t, timeout > 0 && timeout <= 2*time.Minute, "%s: %s", name, timeout)
	}
}

// Those who may read metrics do not wait for each other.
func TestManyMayReadMetricsAtOnce(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review map[string]any
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review["status"] = map[string]any{"authenticated": true, "allowed": true, "user": map[string]any{"username": "prometheus"}}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(api.Close)
	config := &clientrest.Config{Host: api.URL, ContentConfig: clientrest.ContentConfig{ContentType: "application/json"}}
	handler, err := reviewedBy(config, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }), logr.Discard())
	require.NoError(t, err)
	var passed atomic.Int32
	var group sync.WaitGroup
	const readers = 90
	for i := range readers {
		group.Go(func() {
			request := httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody)
			request.RemoteAddr = fmt.Sprintf("10.0.0.%d:4711", i)
			request.Header.Set("Authorization", fmt.Sprint("Bearer ", i))
			recorder := httptest.NewRecorder()
			handler.ServeHTTP(recorder, request)
			if recorder.Code == http.StatusOK {
				passed.Add(1)
			}
		})
	}
	group.Wait()
	assert.EqualValues(t, readers, passed.Load())
}
