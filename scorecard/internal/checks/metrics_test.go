package checks

import (
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

func TestLacking(t *testing.T) {
	const served = `# TYPE trainingjob_loss gauge
trainingjob_loss{namespace="ml",training_job="other"} 1
# TYPE trainingjob_progress_percent gauge
trainingjob_progress_percent{namespace="ml",training_job="digits"} 50
# TYPE trainingjob_total gauge
trainingjob_total{namespace="ml",state="Running"} 1
`
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(served))
	require.NoError(t, err)
	job := &mlv1.TrainingJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "digits"}}

	assert.Empty(t, lacking(families, job, []series{{"trainingjob_progress_percent", true}, {"trainingjob_total", false}}))

	missing := errors.Join(lacking(families, job, []series{{"trainingjob_loss", true}, {"trainingjob_accuracy", true}})...)
	assert.EqualError(t, missing, "metric trainingjob_loss has no series of TrainingJob digits\nmetric trainingjob_accuracy is not served")
}

func TestAlerts(t *testing.T) {
	tests := map[string]struct {
		rules string
		want  string
	}{
		"an alert that says all there is to say": {
			rules: `{alert: A, expr: "rate(trainingjob_failed_total[5m]) > 0", labels: {severity: warning}, annotations: {summary: s, runbook_url: r}}`,
		},
		"no rule at all":                   {want: "the bundle has no alert on TrainingJobs"},
		"a recording rule is not an alert": {rules: `{record: a:b, expr: sum(trainingjob_total)}`, want: "the bundle has no alert on TrainingJobs"},
		"an alert on something else":       {rules: `{alert: A, expr: up == 0, labels: {severity: warning}, annotations: {summary: s, runbook_url: r}}`, want: "none of the operator's metrics"},
		"an alert without annotations":     {rules: `{alert: A, expr: trainingjob_total > 9, labels: {severity: warning}}`, want: "alert A lacks the annotation summary"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			object := map[string]any{}
			require.NoError(t, yaml.Unmarshal([]byte("spec: {groups: [{name: g, rules: ["+test.rules+"]}]}"), &object))
			rules, err := alertsOf(object)
			require.NoError(t, err)

			err = errors.Join(alertProblems(rules)...)

			if test.want == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, test.want)
			}
		})
	}
}
