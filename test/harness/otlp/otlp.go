// Package otlp is a receiver of traces for tests.
package otlp

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Span that was received.
type Span struct {
	Service, Name, Trace string
	ID, Parent           string
	Attributes           map[string]string
	IsError              bool
}

// Receiver of traces by OTLP over HTTP.
type Receiver struct {
	URL   string
	mutex sync.Mutex
	spans []Span
}

// New returns a receiver that runs until the test ends.
func New(t testing.TB) *Receiver {
	r := &Receiver{}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	r.URL = server.URL
	return r
}

// Spans received so far, by name.
func (r *Receiver) Spans() map[string]Span {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	byName := map[string]Span{}
	for _, span := range r.spans {
		byName[span.Name] = span
	}
	return byName
}

// ServeHTTP implements http.Handler.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	var export collector.ExportTraceServiceRequest
	if err != nil || request.URL.Path != "/v1/traces" || proto.Unmarshal(body, &export) != nil {
		http.Error(w, "not an export of traces", http.StatusBadRequest)
		return
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for _, resource := range export.ResourceSpans {
		service := ""
		for _, attribute := range resource.Resource.Attributes {
			if attribute.Key == "service.name" {
				service = attribute.Value.GetStringValue()
			}
		}
		for _, scope := range resource.ScopeSpans {
			for _, span := range scope.Spans {
				received := Span{
					Service: service, Name: span.Name, Trace: hex.EncodeToString(span.TraceId), ID: hex.EncodeToString(span.SpanId),
					Parent: hex.EncodeToString(span.ParentSpanId), Attributes: map[string]string{}, IsError: span.GetStatus().GetCode() == 2,
				}
				for _, attribute := range span.Attributes {
					received.Attributes[attribute.Key] = attribute.Value.GetStringValue()
				}
				r.spans = append(r.spans, received)
			}
		}
	}
}
