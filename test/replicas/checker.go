package replicas

import (
	"fmt"
	"slices"
)

// ending is an end of a job, as the database noted it.
type ending struct {
	Status string
	Fence  int64
}

// lease as its worker saw it: from when it got it until it was over by the worker's knowledge, or the worker stopped.
type lease struct{ fence, from, to int64 }

// check returns what contradicts the service's word. endings are all ends of each job that the database noted, final the status that each
// job has at last.
func check(history []event, endings map[string][]ending, final map[string]string) []string {
	var wrong []string
	report := func(format string, values ...any) { wrong = append(wrong, fmt.Sprintf(format, values...)) }
	expected := map[string]string{completed: "succeeded", failed: "failed", cancelled: "cancelled"}
	for _, e := range history {
		switch e.Kind {
		case accepted:
			if n := len(endings[e.Job]); n != 1 {
				report("%s was acknowledged and ended %d times: %v, at last %q", e.Job, n, endings[e.Job], final[e.Job])
			}
		case completed, failed, cancelled:
			if final[e.Job] != expected[e.Kind] {
				report("%s was acknowledged as %s and is %q", e.Job, e.Kind, final[e.Job])
			}
			if ends := endings[e.Job]; len(ends) == 1 && e.Fence != 0 && ends[0].Fence != e.Fence {
				report("%s was acknowledged as %s under lease %d and ended under %d", e.Job, e.Kind, e.Fence, ends[0].Fence)
			}
		}
	}
	for job, ends := range endings {
		if len(ends) == 1 && ends[0].Status != final[job] {
			report("%s ended as %s and is %s", job, ends[0].Status, final[job])
		}
	}
	for job, leases := range leasesOf(history) {
		for i := 1; i < len(leases); i++ {
			before, after := leases[i-1], leases[i]
			if before.fence == after.fence {
				report("%s has lease %d twice", job, after.fence)
			}
			if before.to > after.from {
				report("%s has lease %d until %d and lease %d from %d, %d µs too early", job, before.fence, before.to, after.fence, after.from,
					before.to-after.from)
			}
		}
	}
	slices.Sort(wrong)
	return wrong
}

// leasesOf each job, in the order of their fences.
func leasesOf(history []event) map[string][]lease {
	type key struct {
		job   string
		fence int64
	}
	leftAt := map[key]int64{}
	until := map[key]int64{}
	for _, e := range history {
		k := key{e.Job, e.Fence}
		switch e.Kind {
		case leased, kept:
			until[k] = max(until[k], e.Until)
		case left:
			leftAt[k] = e.At
		}
	}
	all := map[string][]lease{}
	for _, e := range history {
		if e.Kind != leased {
			continue
		}
		k := key{e.Job, e.Fence}
		to := until[k]
		if at, ok := leftAt[k]; ok {
			to = min(to, at)
		}
		all[e.Job] = append(all[e.Job], lease{fence: e.Fence, from: e.At, to: to})
	}
	for _, leases := range all {
		slices.SortFunc(leases, func(a, b lease) int { return int(a.fence - b.fence) })
	}
	return all
}
