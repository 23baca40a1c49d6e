package tracing_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"

	"github.com/go-logr/logr/testr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/dcnlab/spot-training-operator/internal/tracing"
	"github.com/dcnlab/spot-training-operator/test/harness/otlp"
)

var failing = reconcile.Func(func(_ context.Context, request ctrl.Request) (ctrl.Result, error) {
	if request.Name == "broken" {
		return ctrl.Result{}, errors.New("conflict")
	}
	return ctrl.Result{RequeueAfter: 7}, nil
})

func environment(t *testing.T, variables map[string]string) {
	t.Helper()
	for _, name := range []string{
		"OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
		"OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_SERVICE_NAME",
	} {
		t.Setenv(name, variables[name])
	}
}

func TestNothingIsSetUpWithoutTheVariables(t *testing.T) {
	for name, variables := range map[string]map[string]string{
		"no variables": nil,
		"no exporter":  {"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"},
		"SDK disabled": {"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"},
	} {
		t.Run(name, func(t *testing.T) {
			environment(t, variables)
			provider, goroutines := otel.GetTracerProvider(), runtime.NumGoroutine()
			stop, err := tracing.Start(t.Context(), "test", testr.New(t))
			require.NoError(t, err)
			defer stop()
			assert.False(t, tracing.IsEnabled())
			assert.Equal(t, provider, otel.GetTracerProvider())
			assert.LessOrEqual(t, runtime.NumGoroutine(), goroutines)
			mux := http.NewServeMux()
			assert.Same(t, mux, tracing.Handler(mux, "/health/"))
			result, err := tracing.Reconciler("AIJob", failing).Reconcile(t.Context(), ctrl.Request{})
			require.NoError(t, err)
			assert.EqualValues(t, 7, result.RequeueAfter)
		})
	}
}

func TestUnsupportedVariablesAreErrors(t *testing.T) {
	for want, variables := range map[string]map[string]string{
		`OTEL_TRACES_EXPORTER: "zipkin" is not supported`:      {"OTEL_TRACES_EXPORTER": "zipkin"},
		`OTEL_EXPORTER_OTLP_PROTOCOL: "grpc" is not supported`: {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
	} {
		environment(t, variables)
		_, err := tracing.Start(t.Context(), "test", testr.New(t))
		assert.ErrorContains(t, err, want)
	}
}

func TestRequestsAndReconcilesGiveSpans(t *testing.T) {
	receiver := otlp.New(t)
	environment(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.URL})
	stop, err := tracing.Start(t.Context(), "test", testr.New(t))
	require.NoError(t, err)

	mux := http.NewServeMux()
	mux.HandleFunc("/jobs/{id}", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	handler := tracing.Handler(mux, "/health/")
	trace := "4bf92f3577b34da6a3ce929d0e0e4736"
	request := httptest.NewRequest(http.MethodGet, "/jobs/1", http.NoBody)
	request.Header.Set("Traceparent", "00-"+trace+"-00f067aa0ba902b7-01")
	handler.ServeHTTP(httptest.NewRecorder(), request)
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/health/ready", http.NoBody))
	_, err = tracing.Reconciler("AIJob", failing).Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "team-a", Name: "broken"}})
	require.ErrorContains(t, err, "conflict")
	stop()

	spans := receiver.Spans()
	require.Len(t, spans, 2)
	served := spans["GET /jobs/{id}"]
	assert.Equal(t, trace, served.Trace)
	assert.Equal(t, "00f067aa0ba902b7", served.Parent)
	assert.Equal(t, "test", served.Service)
	assert.True(t, served.IsError)
	reconciled := spans["Reconcile AIJob"]
	assert.Equal(t, map[string]string{"k8s.object.kind": "AIJob", "k8s.namespace.name": "team-a", "k8s.object.name": "broken"}, reconciled.Attributes)
	assert.True(t, reconciled.IsError)
	assert.Empty(t, reconciled.Parent)
}
