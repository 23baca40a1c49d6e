package faults

import (
	"fmt"
	"slices"
	"time"
)

// terminal are the statuses in which a job ends.
var terminal = []string{"succeeded", "failed", "dead_letter", "cancelled"}

// lease is one lease as its worker saw it.
type lease struct {
	who         string
	fence       int64
	from, until time.Time
	// ended is when the worker had it no longer: it began to give the task back, or was told that it has finished or lost it.
	ended time.Time
}

// validTo is when the worker may no longer rely on the lease.
func (l *lease) validTo() time.Time {
	if !l.ended.IsZero() && l.ended.Before(l.until) {
		return l.ended
	}
	return l.until
}

// life is all that happened to one job.
type life struct {
	accepted, cancelled bool
	leases              []*lease
	finished            []int64 // fences of acknowledged results
}

// check says how the history and the outcomes, which are what the service says of each job in the end, contradict what the service promises: every acknowledged job ends exactly once, what
// was acknowledged stands, and no two workers had valid leases on a job at the same time.
func check(events []event, outcomes map[string]string) []string {
	lives := map[string]*life{}
	slices.SortStableFunc(events, func(a, b event) int { return a.At.Compare(b.At) })
	var wrong []string
	for _, e := range events {
		l := lives[e.Job]
		if l == nil {
			l = &life{}
			lives[e.Job] = l
		}
		if problem := l.follow(e); problem != "" {
			wrong = append(wrong, fmt.Sprintf("job %s: %s", e.Job, problem))
		}
	}
	for id, l := range lives {
		for _, problem := range l.judge(outcomes[id]) {
			wrong = append(wrong, fmt.Sprintf("job %s: %s", id, problem))
		}
	}
	slices.Sort(wrong)
	return wrong
}

// follow takes one event into account. It says what is wrong with it.
func (l *life) follow(e event) string {
	switch e.Kind {
	case accepted:
		l.accepted = true
	case cancelled:
		l.cancelled = true
	case granted:
		l.leases = append(l.leases, &lease{who: e.Who, fence: e.Fence, from: e.At, until: e.Until})
		return ""
	case finished:
		if !slices.Contains(l.finished, e.Fence) {
			l.finished = append(l.finished, e.Fence)
		}
	}
	if e.Fence == 0 {
		return ""
	}
	held := l.lease(e.Fence)
	switch {
	case held == nil:
		return fmt.Sprintf("%s %s by lease %d, which was not granted", e.Who, e.Kind, e.Fence)
	case e.Kind == extended:
		held.until = e.Until
	case held.ended.IsZero():
		held.ended = e.At
	}
	return ""
}

func (l *life) lease(fence int64) *lease {
	for _, held := range l.leases {
		if held.fence == fence {
			return held
		}
	}
	return nil
}

// judge says what is wrong with the whole.
func (l *life) judge(end string) []string {
	var wrong []string
	if l.accepted && end == "" {
		wrong = append(wrong, "it was accepted, and is not known any more")
	}
	if l.accepted && end != "" && !slices.Contains(terminal, end) {
		wrong = append(wrong, "it was accepted, and has not ended: "+end)
	}
	if len(l.finished) > 1 {
		wrong = append(wrong, fmt.Sprintf("results were accepted by the leases %v: it ended more than once", l.finished))
	}
	if len(l.finished) > 0 && l.cancelled {
		wrong = append(wrong, "both a result and a cancellation were accepted")
	}
	if len(l.finished) == 1 && end != "succeeded" {
		wrong = append(wrong, "a result was accepted, and in the end it is "+end)
	}
	if l.cancelled && end != "cancelled" {
		wrong = append(wrong, "its cancellation was accepted, and in the end it is "+end)
	}
	return append(wrong, l.overlaps()...)
}

// overlaps says which leases were valid at the same time.
func (l *life) overlaps() []string {
	var wrong []string
	slices.SortFunc(l.leases, func(a, b *lease) int { return a.from.Compare(b.from) })
	for i, one := range l.leases {
		for _, next := range l.leases[i+1:] {
			if next.fence <= one.fence {
				wrong = append(wrong, fmt.Sprintf("lease %d came after lease %d", next.fence, one.fence))
			}
			if next.from.Before(one.validTo()) {
				wrong = append(wrong, fmt.Sprintf("%s had lease %d until %s, and %s got lease %d at %s",
					one.who, one.fence, one.validTo().Format(time.RFC3339Nano), next.who, next.fence, next.from.Format(time.RFC3339Nano)))
			}
		}
	}
	return wrong
}
