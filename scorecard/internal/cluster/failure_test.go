package cluster_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/operator-framework/api/pkg/apis/scorecard/v1alpha3"
	"github.com/stretchr/testify/assert"

	"github.com/dcnlab/spot-training-operator/scorecard/internal/cluster"
)

func TestStatus(t *testing.T) {
	broken := cluster.Failf("%s is broken", "it").Try("repair it")
	dull := cluster.Failf("it is dull")
	unreachable := errors.New("the cluster cannot be reached")

	tests := map[string]struct {
		err  error
		want v1alpha3.TestResult
	}{
		"nothing found passes": {
			want: v1alpha3.TestResult{State: v1alpha3.PassState},
		},
		"a promise that was not kept fails, with the remedy": {
			err: broken,
			want: v1alpha3.TestResult{
				State: v1alpha3.FailState, Errors: []string{"it is broken"}, Suggestions: []string{"repair it"},
			},
		},
		"a failure stays one when it is wrapped": {
			err: fmt.Errorf("in the second try: %w", broken),
			want: v1alpha3.TestResult{
				State: v1alpha3.FailState, Errors: []string{"in the second try: it is broken"}, Suggestions: []string{"repair it"},
			},
		},
		"several failures are told one by one": {
			err: errors.Join(broken, errors.Join(dull)),
			want: v1alpha3.TestResult{
				State: v1alpha3.FailState, Errors: []string{"it is broken", "it is dull"}, Suggestions: []string{"repair it"},
			},
		},
		"what kept the test from being done is an error": {
			err:  unreachable,
			want: v1alpha3.TestResult{State: v1alpha3.ErrorState, Errors: []string{"the cluster cannot be reached"}},
		},
		"an error outweighs a failure, whichever comes first": {
			err: errors.Join(dull, unreachable, dull),
			want: v1alpha3.TestResult{
				State: v1alpha3.ErrorState, Errors: []string{"it is dull", "the cluster cannot be reached", "it is dull"},
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.want.Name, test.want.Log = "level1-x", "looked"
			assert.Equal(t, v1alpha3.TestStatus{Results: []v1alpha3.TestResult{test.want}}, cluster.Status("level1-x", "looked", test.err))
		})
	}
}
