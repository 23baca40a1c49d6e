package tracing

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

var tracer = otel.Tracer("github.com/dcnlab/spot-training-operator/internal/tracing")

// Reconciler returns a reconciler that starts a span for each call of r, and adds its trace ID to the log. kind names the objects.
func Reconciler(kind string, r reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
		ctx, span := tracer.Start(ctx, "Reconcile "+kind, trace.WithAttributes(
			attribute.String("k8s.object.kind", kind), attribute.String("k8s.namespace.name", request.Namespace),
			attribute.String("k8s.object.name", request.Name),
		))
		defer span.End()
		if span.IsRecording() {
			ctx = log.IntoContext(ctx, log.FromContext(ctx).WithValues("traceID", span.SpanContext().TraceID()))
		}
		result, err := r.Reconcile(ctx, request)
		if err != nil {
			span.RecordError(err)
			span.SetStatus(codes.Error, err.Error())
		}
		return result, err
	})
}
