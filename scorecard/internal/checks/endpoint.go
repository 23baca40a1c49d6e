package checks

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/rest"

	"github.com/dcnlab/spot-training-operator/scorecard/internal/cluster"
)

type endpoint struct {
	url    string
	token  string
	client *http.Client
}

// newEndpoint uses the token of the configuration.
func newEndpoint(config *rest.Config, url string) (*endpoint, error) {
	token := config.BearerToken
	if config.BearerTokenFile != "" {
		text, err := os.ReadFile(config.BearerTokenFile)
		if err != nil {
			return nil, fmt.Errorf("read the token of the ServiceAccount: %w", err)
		}
		token = strings.TrimSpace(string(text))
	}
	if token == "" {
		return nil, errors.New("the metrics are read with the token of a ServiceAccount: run this test in a pod")
	}
	transport := &http.Transport{
		// The manager's certificate may be self-signed. The token may only read metrics and this namespace.
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}, //nolint:gosec // see above
	}
	return &endpoint{url: url, token: token, client: &http.Client{Transport: transport, Timeout: 10 * time.Second}}, nil
}

func (e *endpoint) get(ctx context.Context, token string) (code int, body []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, e.url, nil)
	if err != nil {
		return 0, nil, fmt.Errorf("ask for %s: %w", e.url, err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := e.client.Do(request)
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
	code, body, err := e.get(ctx, e.token)
	if err != nil {
		return nil, err
	}
	if code != http.StatusOK {
		return nil, cluster.Failf("%s answers %d to a client with the permission: %.200s", e.url, code, body).
			Try("See that the test's ServiceAccount may get /metrics, and the manager's may review tokens.")
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(body)))
	if err != nil {
		return nil, cluster.Failf("%s is not in Prometheus' format: %v", e.url, err)
	}
	return families, nil
}
