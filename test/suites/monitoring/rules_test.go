package monitoring_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

func TestTheRulesDoWhatTheyPromise(t *testing.T) {
	folder := t.TempDir()
	readRules(t).write(t, folder)
	text, err := os.ReadFile("rules_test.yaml")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "rules_test.yaml"), text, 0o600))

	promtool(t, folder, "check", "rules", "--lint=all", "--lint-fatal", "rules.yaml")
	promtool(t, folder, "test", "rules", "rules_test.yaml")
}

// A user who is paged by an alert knows how bad it is, what it is about, and what to do.
func TestEveryAlertIsFitForItsReader(t *testing.T) {
	alerts := readRules(t).alerts()
	require.NotEmpty(t, alerts)
	known := map[string]bool{}
	for _, a := range alerts {
		t.Run(a.Alert, func(t *testing.T) {
			assert.False(t, known[a.Alert], "its name is its own")
			known[a.Alert] = true
			assert.Contains(t, []string{"critical", "warning", "info"}, a.Labels["severity"])
			assert.NotEmpty(t, a.Annotations["summary"])
			assert.NotEmpty(t, a.Annotations["description"])
			if strings.Contains(a.Expr, "training_job") {
				assert.Contains(t, a.Annotations["summary"], "{{ $labels.namespace }}/{{ $labels.training_job }}", "it names the job")
			}
			path, ok := strings.CutPrefix(a.Annotations["runbook_url"], "https://github.com/dcnlab/spot-training-operator/blob/main/")
			require.True(t, ok, a.Annotations["runbook_url"])
			assert.Equal(t, "docs/runbooks/"+a.Alert+".md", path)
			page, err := os.ReadFile(filepath.Join(root, path))
			require.NoError(t, err)
			for _, heading := range []string{"# " + a.Alert + "\n", "## Meaning\n", "## Impact\n", "## Diagnosis\n", "## Remedy\n"} {
				assert.Contains(t, string(page), heading)
			}
		})
	}
	pages, err := filepath.Glob(root + "/docs/runbooks/*.md")
	require.NoError(t, err)
	for _, page := range pages {
		assert.True(t, known[strings.TrimSuffix(filepath.Base(page), ".md")], "%s belongs to an alert", page)
	}
}

// promtool passes over alerts that no test names.
func TestEveryAlertIsShownToFireAndToRest(t *testing.T) {
	text, err := os.ReadFile("rules_test.yaml")
	require.NoError(t, err)
	var file struct {
		Tests []struct {
			AlertRuleTests []struct {
				Alertname string `json:"alertname"`
				ExpAlerts []any  `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		} `json:"tests"`
	}
	require.NoError(t, yaml.Unmarshal(text, &file))
	fires, rests := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, check := range test.AlertRuleTests {
			if len(check.ExpAlerts) > 0 {
				fires[check.Alertname] = true
			} else {
				rests[check.Alertname] = true
			}
		}
	}
	for _, a := range readRules(t).alerts() {
		assert.True(t, fires[a.Alert], "%s is shown to fire", a.Alert)
		assert.True(t, rests[a.Alert], "%s is shown to rest", a.Alert)
	}
}
