package replicas

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheckerFindsEachBrokenWord(t *testing.T) {
	succeeded := map[string][]ending{"j": {{"succeeded", 2}}}
	for name, test := range map[string]struct {
		history []event
		endings map[string][]ending
		final   string
		wrong   string
	}{
		"all is well": {
			[]event{
				{Kind: accepted, Job: "j"},
				{Kind: leased, Job: "j", Fence: 1, At: 10, Until: 20}, {Kind: leased, Job: "j", Fence: 2, At: 20, Until: 30},
				{Kind: kept, Job: "j", Fence: 2, At: 25, Until: 40}, {Kind: left, Job: "j", Fence: 2, At: 35},
				{Kind: completed, Job: "j", Fence: 2, At: 36},
			}, succeeded, "succeeded", "",
		},
		"lost":            {[]event{{Kind: accepted, Job: "j"}}, nil, "queued", "ended 0 times"},
		"ended twice":     {[]event{{Kind: accepted, Job: "j"}}, map[string][]ending{"j": {{"failed", 1}, {"succeeded", 2}}}, "succeeded", "ended 2 times"},
		"another end":     {[]event{{Kind: cancelled, Job: "j"}}, succeeded, "succeeded", "acknowledged as cancelled"},
		"another fence":   {[]event{{Kind: completed, Job: "j", Fence: 1}}, succeeded, "succeeded", "under lease 1 and ended under 2"},
		"changed its end": {nil, succeeded, "failed", "ended as succeeded and is failed"},
		"two leases": {
			[]event{{Kind: leased, Job: "j", Fence: 1, At: 10, Until: 20}, {Kind: leased, Job: "j", Fence: 2, At: 19, Until: 30}},
			succeeded, "succeeded", "too early",
		},
		"a lease kept too long": {
			[]event{
				{Kind: leased, Job: "j", Fence: 1, At: 10, Until: 20}, {Kind: kept, Job: "j", Fence: 1, At: 15, Until: 25},
				{Kind: leased, Job: "j", Fence: 2, At: 21, Until: 30},
			}, succeeded, "succeeded", "too early",
		},
		"one fence for two": {
			[]event{{Kind: leased, Job: "j", Fence: 1, At: 10, Until: 20}, {Kind: leased, Job: "j", Fence: 1, At: 30, Until: 40}},
			succeeded, "succeeded", "twice",
		},
	} {
		t.Run(name, func(t *testing.T) {
			wrong := strings.Join(check(test.history, test.endings, map[string]string{"j": test.final}), "\n")
			if test.wrong == "" {
				require.Empty(t, wrong)
			} else {
				require.Contains(t, wrong, test.wrong)
			}
		})
	}
}
