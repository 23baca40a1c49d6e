package faults

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestTheCheckerFindsWhatContradictsThePromises(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }
	in := event{At: at(0), Kind: accepted, Job: "j"}
	lease := func(from int, who string, fence int64, until int) event {
		return event{At: at(from), Kind: granted, Job: "j", Who: who, Fence: fence, Until: at(until)}
	}
	says := func(when int, what kind, who string, fence int64) event {
		return event{At: at(when), Kind: what, Job: "j", Who: who, Fence: fence}
	}
	well := map[string]string{"j": "succeeded"}
	tests := map[string]struct {
		events   []event
		outcomes map[string]string
		want     []string
	}{
		"all is well": {[]event{in, lease(1, "a", 1, 5), says(2, finished, "a", 1)}, well, nil},
		"a worker dies, and another comes after its lease": {
			[]event{in, lease(1, "a", 1, 5), lease(6, "b", 2, 9), says(7, finished, "b", 2)}, well, nil,
		},
		"a task that was given back may go to another at once": {
			[]event{in, lease(1, "a", 1, 5), says(2, gaveBack, "a", 1), lease(3, "b", 2, 9), says(4, finished, "b", 2)}, well, nil,
		},
		"a task that is being given back may go to another before the answer": {
			[]event{
				in, lease(1, "a", 1, 5), says(2, givesBack, "a", 1), lease(3, "b", 2, 9), says(4, gaveBack, "a", 1), says(5, finished, "b", 2),
			}, well, nil,
		},
		"a result that is told twice":            {[]event{in, lease(1, "a", 1, 5), says(2, finished, "a", 1), says(3, finished, "a", 1)}, well, nil},
		"a submission that was not acknowledged": {nil, map[string]string{"j": "queued"}, nil},
		"a lost job":                             {[]event{in}, nil, []string{"job j: it was accepted, and is not known any more"}},
		"a job that never ends": {
			[]event{in}, map[string]string{"j": "retrying"}, []string{"job j: it was accepted, and has not ended: retrying"},
		},
		"two at the same time": {
			[]event{in, lease(1, "a", 1, 5), lease(4, "b", 2, 9), says(5, finished, "b", 2)}, well,
			[]string{"job j: a had lease 1 until 2026-01-01T12:00:05Z, and b got lease 2 at 2026-01-01T12:00:04Z"},
		},
		"a heartbeat makes a lease longer": {
			[]event{
				in, lease(1, "a", 1, 5), {At: at(4), Kind: extended, Job: "j", Who: "a", Fence: 1, Until: at(8)}, lease(6, "b", 2, 9),
				says(7, finished, "b", 2),
			}, well,
			[]string{"job j: a had lease 1 until 2026-01-01T12:00:08Z, and b got lease 2 at 2026-01-01T12:00:06Z"},
		},
		"two results": {
			[]event{in, lease(1, "a", 1, 2), lease(3, "b", 2, 9), says(4, finished, "b", 2), says(5, finished, "a", 1)}, well,
			[]string{"job j: results were accepted by the leases [2 1]: it ended more than once"},
		},
		"a result that is gone": {
			[]event{in, lease(1, "a", 1, 5), says(2, finished, "a", 1)}, map[string]string{"j": "dead_letter"},
			[]string{"job j: a result was accepted, and in the end it is dead_letter"},
		},
		"a cancellation that is gone": {
			[]event{in, says(2, cancelled, "client", 0)}, well, []string{"job j: its cancellation was accepted, and in the end it is succeeded"},
		},
		"fences that do not grow": {
			[]event{in, lease(1, "a", 2, 2), lease(3, "b", 1, 9), says(4, finished, "b", 1)}, well, []string{"job j: lease 1 came after lease 2"},
		},
		"a result by a lease that was not granted": {
			[]event{in, says(4, finished, "a", 7)}, well, []string{"job j: a finished by lease 7, which was not granted"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, check(test.events, test.outcomes))
		})
	}
}
