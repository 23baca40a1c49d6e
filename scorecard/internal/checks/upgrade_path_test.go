package checks

import (
	"errors"
	"testing"

	"github.com/blang/semver/v4"
	"github.com/operator-framework/api/pkg/lib/version"
	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	"github.com/stretchr/testify/assert"
)

// release is a ClusterServiceVersion named x.v<version>.
func release(of string, change ...func(*operatorsv1alpha1.ClusterServiceVersion)) *operatorsv1alpha1.ClusterServiceVersion {
	csv := &operatorsv1alpha1.ClusterServiceVersion{}
	csv.Name = "x.v" + of
	csv.Spec.Version = version.OperatorVersion{Version: semver.MustParse(of)}
	for _, apply := range change {
		apply(csv)
	}
	return csv
}

func TestJudgePath(t *testing.T) {
	replaces := func(name string) func(*operatorsv1alpha1.ClusterServiceVersion) {
		return func(csv *operatorsv1alpha1.ClusterServiceVersion) { csv.Spec.Replaces = name }
	}
	skips := func(names ...string) func(*operatorsv1alpha1.ClusterServiceVersion) {
		return func(csv *operatorsv1alpha1.ClusterServiceVersion) { csv.Spec.Skips = names }
	}
	spans := func(span string) func(*operatorsv1alpha1.ClusterServiceVersion) {
		return func(csv *operatorsv1alpha1.ClusterServiceVersion) {
			csv.Annotations = map[string]string{skipRange: span}
		}
	}
	misnamed := func(csv *operatorsv1alpha1.ClusterServiceVersion) { csv.Name = "x" }

	tests := map[string]struct {
		csv  *operatorsv1alpha1.ClusterServiceVersion
		want string
	}{
		"the first release has none before it":    {csv: release("0.1.0")},
		"a later one replaces an earlier one":     {csv: release("0.3.0", replaces("x.v0.2.0"))},
		"or skips some":                           {csv: release("0.3.0", skips("x.v0.2.0", "x.v0.2.1"))},
		"or all of a range":                       {csv: release("0.3.0", spans(">=0.1.0 <0.3.0"))},
		"a later one without predecessor":         {csv: release("0.3.0"), want: "neither replaces nor skips"},
		"one that replaces another package":       {csv: release("0.3.0", replaces("y.v0.2.0")), want: "not a version of this package"},
		"one that replaces itself":                {csv: release("0.3.0", replaces("x.v0.3.0")), want: "not earlier"},
		"one that skips a later one":              {csv: release("0.3.0", skips("x.v0.2.0", "x.v0.4.0")), want: "x.v0.4.0, which is not earlier"},
		"a range that cannot be read":             {csv: release("0.3.0", spans("earlier ones")), want: "not a range of versions"},
		"a range with the version itself":         {csv: release("0.3.0", spans(">=0.1.0 <=0.3.0")), want: "contains the version"},
		"one that is not named after its version": {csv: release("0.3.0", misnamed), want: "not named after its version"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := errors.Join(pathProblems(test.csv)...)

			if test.want == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, test.want)
			}
		})
	}
}
