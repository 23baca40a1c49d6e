package monitoring_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// metricsService is the Service that the ServiceMonitor scrapes; the Prometheus operator has its name in the label job.
const metricsService = "spot-training-operator-controller-manager-metrics-service"

// prometheus is a Prometheus that scrapes the manager as config/prometheus/service_monitor.yaml has it scraped.
type prometheus struct{ url string }

func startPrometheus(t *testing.T, manager, rules string) *prometheus {
	t.Helper()
	folder := t.TempDir()
	config := fmt.Sprintf(`global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: [%s]
scrape_configs:
- job_name: %s
  honor_labels: true
  static_configs:
  - targets: [%q]
    labels: {namespace: spot-training-operator-system}
`, rules, metricsService, manager)
	path := filepath.Join(folder, "prometheus.yaml")
	require.NoError(t, os.WriteFile(path, []byte(config), 0o600))
	promtool(t, folder, "check", "config", path)
	address := freeAddress(t)
	startProcess(t, "prometheus", nil, "--config.file="+path, "--storage.tsdb.path="+filepath.Join(folder, "data"), "--web.listen-address="+address)
	p := &prometheus{url: "http://" + address}
	eventually(t, "Prometheus is ready", func() bool { return answers(p.url + "/-/ready") })
	return p
}

// ask has Prometheus answer an API request.
func (p *prometheus) ask(t *testing.T, path string, parameters map[string]string, into any) {
	t.Helper()
	query := url.Values{}
	for name, value := range parameters {
		query.Set(name, value)
	}
	response, err := http.Get(p.url + path + "?" + query.Encode())
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode, "%v: %s", parameters, body)
	answer := struct {
		Data any `json:"data"`
	}{into}
	require.NoError(t, json.Unmarshal(body, &answer))
}

// sample is a series in an answer: instants have a value, ranges several.
type sample struct {
	Metric map[string]string `json:"metric"`
	Value  []any             `json:"value"`
	Values [][]any           `json:"values"`
}

func (p *prometheus) query(t *testing.T, expr string, instant bool) []sample {
	t.Helper()
	var result struct {
		Result []sample `json:"result"`
	}
	if instant {
		p.ask(t, "/api/v1/query", map[string]string{"query": expr}, &result)
		return result.Result
	}
	now := time.Now()
	p.ask(t, "/api/v1/query_range", map[string]string{
		"query": expr, "step": "2s", "end": strconv.FormatInt(now.Unix(), 10), "start": strconv.FormatInt(now.Add(-time.Minute).Unix(), 10),
	}, &result)
	return result.Result
}

// hasData says whether an answer has a number that can be drawn.
func (p *prometheus) hasData(t *testing.T, expr string, instant bool) bool {
	t.Helper()
	for _, series := range p.query(t, expr, instant) {
		for _, point := range append(series.Values, series.Value) {
			if len(point) != 2 {
				continue
			}
			if value, err := strconv.ParseFloat(point[1].(string), 64); err == nil && !math.IsNaN(value) && !math.IsInf(value, 0) {
				return true
			}
		}
	}
	return false
}

// rulesAreHealthy sees that all rules can be evaluated on the manager's real series, and that the alert on the job that
// failed fires with the job's own namespace.
func (w *world) rulesAreHealthy(t *testing.T) {
	t.Helper()
	var found struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	w.prometheus.ask(t, "/api/v1/rules", nil, &found)
	count := 0
	for _, group := range found.Groups {
		for _, rule := range group.Rules {
			count++
			assert.Equal(t, "ok", rule.Health, "%s: %s", rule.Name, rule.LastError)
		}
	}
	assert.Len(t, readRules(t).alerts(), count)
	eventually(t, "the alert on the failed job fires", func() bool {
		firing := fmt.Sprintf(`ALERTS{alertname="TrainingJobFailed",alertstate="firing",namespace=%q,training_job=%q}`, jobNamespace, failedJob)
		return len(w.prometheus.query(t, firing, true)) == 1
	})
	assert.Empty(t, w.prometheus.query(t, `ALERTS{severity="critical",alertstate="firing"}`, true), "nothing else is wrong")
}

func answers(url string) bool {
	response, err := http.Get(url)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	return response.StatusCode == http.StatusOK
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().String()
}
