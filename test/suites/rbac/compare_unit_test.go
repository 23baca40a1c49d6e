package rbac_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	rbacv1 "k8s.io/api/rbac/v1"
)

func TestTheComparisonFindsWhatIsWrong(t *testing.T) {
	rules := []rbacv1.PolicyRule{{APIGroups: []string{"batch"}, Resources: []string{"jobs"}, Verbs: []string{"create", "delete"}}}
	create := access{group: "batch", resource: "jobs", verb: "create"}
	remove := access{group: "batch", resource: "jobs", verb: "delete"}
	elsewhere := func(a access) request { return request{a, "b", "team"} }
	tests := map[string]struct {
		rules      []rbacv1.PolicyRule
		requests   map[request]int
		exceptions []exception
		want       []string
	}{
		"nothing, when everything was used": {
			rules: rules, requests: map[request]int{elsewhere(create): 1, elsewhere(remove): 1},
		},
		"a verb that was never used": {
			rules: rules, requests: map[request]int{elsewhere(create): 1},
			want: []string{"b grants delete jobs.batch, which was never used"},
		},
		"a use that another binding allowed": {
			rules: rules, requests: map[request]int{elsewhere(create): 1, {remove, "other", "team"}: 1},
			want: []string{"b grants delete jobs.batch, which was never used"},
		},
		"nothing, when there is a reason": {
			rules: rules, requests: map[request]int{elsewhere(create): 1}, exceptions: []exception{{access: remove, reason: "because"}},
		},
		"a reason that is not needed": {
			rules: rules, requests: map[request]int{elsewhere(create): 1, elsewhere(remove): 1}, exceptions: []exception{{access: remove, reason: "because"}},
			want: []string{"delete jobs.batch is an exception, but it was used"},
		},
		"a reason for what is not granted": {
			exceptions: []exception{{access: remove, reason: "because"}},
			want:       []string{"delete jobs.batch is an exception, but it is not granted"},
		},
		"a wildcard": {
			rules:    []rbacv1.PolicyRule{{APIGroups: []string{"batch"}, Resources: []string{"jobs"}, Verbs: []string{"*"}}},
			requests: map[request]int{elsewhere(create): 1},
			want:     []string{"b grants * jobs.batch, which was never used"},
		},
		"a cluster-wide grant that a Role would do for": {
			rules: rules[:1], requests: map[request]int{{create, "b", "own"}: 1, elsewhere(remove): 1},
			want: []string{"b grants create jobs.batch everywhere, but it was only used in the manager's own namespace"},
		},
		"an object by name that was never asked for": {
			rules:    []rbacv1.PolicyRule{{APIGroups: []string{"batch"}, Resources: []string{"jobs"}, ResourceNames: []string{"x", "y"}, Verbs: []string{"delete"}}},
			requests: map[request]int{elsewhere(access{group: "batch", resource: "jobs", verb: "delete", name: "x"}): 1},
			want:     []string{"b grants delete jobs.batch y, which was never used"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := compare(grantsOf(test.rules, "b", ""), test.requests, test.exceptions, "own").findings

			assert.Len(t, got, len(test.want))
			for i, finding := range test.want {
				assert.Contains(t, got[i], finding)
			}
		})
	}
}
