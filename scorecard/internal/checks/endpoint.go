package checks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/rest"

	"github.com/dcnlab/spot-training-operator/scorecard/internal/cluster"
)

// endpoint has a client for each of those that may ask for the metrics.
type endpoint struct {
	url              string
	reader, stranger *http.Client
}

// newEndpoint reads with the token of the configuration.
func newEndpoint(config *rest.Config, url string) (*endpoint, error) {
	if config.BearerToken == "" && config.BearerTokenFile == "" {
		return nil, errors.New("the metrics are read with the token of a ServiceAccount: run this test in a pod")
	}
	// The manager's certificate may be self-signed. The token may only read metrics and this namespace.
	stranger := &rest.Config{TLSClientConfig: rest.TLSClientConfig{Insecure: true}, Timeout: 10 * time.Second}
	reader := rest.CopyConfig(stranger)
	reader.BearerToken, reader.BearerTokenFile = config.BearerToken, config.BearerTokenFile
	e := &endpoint{url: url}
	var err error
	if e.stranger, err = rest.HTTPClientFor(stranger); err != nil {
		return nil, fmt.Errorf("prepare to ask for %s: %w", url, err)
	}
	if e.reader, err = rest.HTTPClientFor(reader); err != nil {
		return nil, fmt.Errorf("read the token of the ServiceAccount: %w", err)
	}
	return e, nil
}

func (e *endpoint) get(ctx context.Context, as *http.Client) (code int, body []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, e.url, nil)
	if err != nil {
		return 0, nil, fmt.Errorf("ask for %s: %w", e.url, err)
	}
	response, err := as.Do(request)
	if err != nil {
		return 0, nil, fmt.Errorf("ask for %s: %w", e.url, err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err = io.ReadAll(io.LimitReader(response.Body, 32<<20))
	if err != nil {
		return 0, nil, fmt.Errorf("read %s: %w", e.url, err)
	}
	return response.StatusCode, body, nil
}

func (e *endpoint) scrape(ctx context.Context) (map[string]*dto.MetricFamily, error) {
	code, body, err := e.get(ctx, e.reader)
	if err != nil {
		return nil, err
	}
	if code != http.StatusOK {
		return nil, cluster.Failf("%s answers %d to a client with the permission: %.200s", e.url, code, body).
			Try("See that the test's ServiceAccount may get /metrics, and the manager's may review tokens.")
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		return nil, cluster.Failf("%s is not in Prometheus' format: %v", e.url, err)
	}
	return families, nil
}
