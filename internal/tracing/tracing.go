// Package tracing exports OpenTelemetry traces by OTLP, set up by the standard OTEL_* environment variables. Without them nothing is
// set up and spans cost next to nothing.
package tracing

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace/noop"
)

const stopTimeout = 3 * time.Second

// IsEnabled says whether the environment asks for traces: it names an OTLP endpoint, or the exporter otlp.
func IsEnabled() bool {
	exporter := os.Getenv("OTEL_TRACES_EXPORTER")
	switch {
	case strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true"), exporter == "none":
		return false
	case exporter != "":
		return true
	}
	return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}

// Start sets up the export of traces if the environment asks for it, under the name of the service unless OTEL_SERVICE_NAME is set. The
// returned function exports the remaining spans, for at most 3 seconds, and ends the export. Errors: variables that ask for what is not
// supported.
func Start(ctx context.Context, service string, log logr.Logger) (stop func(), err error) {
	if !IsEnabled() {
		return func() {}, nil
	}
	if exporter := os.Getenv("OTEL_TRACES_EXPORTER"); exporter != "" && exporter != "otlp" {
		return nil, fmt.Errorf("OTEL_TRACES_EXPORTER: %q is not supported: use otlp or none", exporter)
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		if protocol := os.Getenv(name); protocol != "" && !strings.HasPrefix(protocol, "http/") {
			return nil, fmt.Errorf("%s: %q is not supported: use http/protobuf, which collectors serve at port 4318", name, protocol)
		}
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("set up the export of traces: %w", err)
	}
	described, err := resource.New(ctx, resource.WithAttributes(semconv.ServiceName(service)), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	provider := trace.NewTracerProvider(trace.WithBatcher(exporter), trace.WithResource(described))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Error(err, "Cannot export traces") }))
	otel.SetTextMapPropagator(propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{}))
	otel.SetTracerProvider(provider)
	log.Info("Exporting traces")
	return func() {
		otel.SetTracerProvider(noop.NewTracerProvider())
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		if err := provider.Shutdown(ending); err != nil {
			log.Error(err, "Cannot export the last traces")
		}
	}, nil
}

// Handler starts a span for each request whose path does not contain untraced. It returns next itself while traces are off.
func Handler(next http.Handler, untraced string) http.Handler {
	if !IsEnabled() {
		return next
	}
	return otelhttp.NewHandler(next, "",
		otelhttp.WithFilter(func(r *http.Request) bool { return !strings.Contains(r.URL.Path, untraced) }),
		otelhttp.WithSpanNameFormatter(func(_ string, r *http.Request) string {
			return strings.TrimSpace(r.Method + " " + strings.TrimSuffix(r.Pattern, "{$}"))
		}))
}
