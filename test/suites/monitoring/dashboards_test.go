package monitoring_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// dashboard is the part of Grafana's model that the dashboards use.
type dashboard struct {
	UID        string `json:"uid"`
	Title      string `json:"title"`
	Templating struct {
		List []struct {
			Name       string `json:"name"`
			Type       string `json:"type"`
			Definition string `json:"definition"`
		} `json:"list"`
	} `json:"templating"`
	Panels []panel `json:"panels"`
}

type panel struct {
	ID          int    `json:"id"`
	Type        string `json:"type"`
	Title       string `json:"title"`
	Description string `json:"description"`
	GridPos     struct{ X, Y, W, H int }
	FieldConfig struct {
		Defaults struct {
			Unit string `json:"unit"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
	Targets []target `json:"targets"`
}

type target struct {
	Expr       string `json:"expr"`
	Instant    bool   `json:"instant"`
	Datasource struct {
		UID string `json:"uid"`
	} `json:"datasource"`
}

func readDashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	paths, err := filepath.Glob(root + "/config/grafana/dashboards/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	all := map[string]dashboard{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		var d dashboard
		require.NoError(t, json.Unmarshal(text, &d), path)
		all[filepath.Base(path)] = d
	}
	return all
}

func TestDashboardsAreWellFormed(t *testing.T) {
	uids := map[string]bool{}
	for name, d := range readDashboards(t) {
		t.Run(name, func(t *testing.T) {
			assert.NotEmpty(t, d.UID)
			assert.False(t, uids[d.UID], "Grafana knows it by its uid")
			uids[d.UID] = true
			ids := map[int]bool{}
			for _, p := range d.Panels {
				assert.False(t, ids[p.ID], "the id of panel %q is its own", p.Title)
				ids[p.ID] = true
				assert.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24, "panel %q is within the page", p.Title)
				for _, other := range d.Panels {
					if other.ID != p.ID {
						assert.False(t, overlap(p, other), "panels %q and %q overlap", p.Title, other.Title)
					}
				}
				if p.Type == "row" {
					continue
				}
				assert.NotEmpty(t, p.Title)
				assert.NotEmpty(t, p.Description, "panel %q says what it shows", p.Title)
				assert.NotEmpty(t, p.FieldConfig.Defaults.Unit, "panel %q has a unit", p.Title)
				assert.NotEmpty(t, p.Targets, "panel %q has a query", p.Title)
				for _, q := range p.Targets {
					assert.Equal(t, "${datasource}", q.Datasource.UID, "panel %q asks the data source that the reader chose", p.Title)
				}
			}
		})
	}
}

func overlap(a, b panel) bool {
	return a.GridPos.X < b.GridPos.X+b.GridPos.W && b.GridPos.X < a.GridPos.X+a.GridPos.W &&
		a.GridPos.Y < b.GridPos.Y+b.GridPos.H && b.GridPos.Y < a.GridPos.Y+a.GridPos.H
}

var labelValues = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)

// The real manager looks after real jobs, the real Prometheus scrapes it and evaluates the rules, and every query of
// every dashboard is answered with data.
func TestEveryQueryOfTheDashboardsIsAnswered(t *testing.T) {
	w := startWorld(t)
	replace := strings.NewReplacer("$namespace", jobNamespace, "$training_job", runningJob, "$queue", waitingQueue, "$__rate_interval", "20s")

	for name, d := range readDashboards(t) {
		for _, variable := range d.Templating.List {
			if variable.Type != "query" {
				continue
			}
			parts := labelValues.FindStringSubmatch(replace.Replace(variable.Definition))
			require.NotNil(t, parts, "%s: variable %s", name, variable.Name)
			var values []string
			w.prometheus.ask(t, "/api/v1/label/"+parts[2]+"/values", map[string]string{"match[]": parts[1]}, &values)
			assert.NotEmpty(t, values, "%s: variable %s", name, variable.Name)
		}
		for _, p := range d.Panels {
			for _, q := range p.Targets {
				expr := replace.Replace(q.Expr)
				require.NotContains(t, expr, "$", "%s: panel %q uses a variable that is not known", name, p.Title)
				eventually(t, name+": panel "+p.Title+" has data: "+expr, func() bool {
					return w.prometheus.hasData(t, expr, q.Instant)
				})
			}
		}
	}
	w.rulesAreHealthy(t)
}
