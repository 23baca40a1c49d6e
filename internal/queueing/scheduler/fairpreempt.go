package scheduler

import "slices"

// fairTo says whether a job still comes first in a queue that goes by shares once its victims are gone: no job is stopped
// for someone who would then hold more than the other.
func (c *cycle) fairTo(job *waiting, victims []*held) bool {
	q := job.queue
	if !q.fairShare() {
		return true
	}
	f := q.line
	lost := map[*ledger]*ledger{}
	lose := func(l *ledger, h *held) {
		if lost[l] == nil {
			lost[l] = &ledger{used: l.used}
		}
		lost[l].used.subtract(&h.need)
	}
	for _, h := range victims {
		if h.queue == q {
			lose(f.of(h.Namespace), h)
			lose(f.ofUser(h.Job), h)
		}
	}
	shareOf := func(l *ledger) float64 {
		if lost[l] != nil {
			l = lost[l]
		}
		return f.dominant(l)
	}
	mine, myUsers := shareOf(f.of(job.Namespace)), shareOf(f.ofUser(job.Job))
	return !slices.ContainsFunc(victims, func(h *held) bool {
		switch {
		case h.queue != q || h.Namespace == job.Namespace && h.User == job.User:
			return false
		case h.Namespace != job.Namespace:
			held := shareOf(f.of(h.Namespace))
			return held < mine || held == mine && comesFirst(f.namespaces.items, h.Namespace, job)
		}
		held := shareOf(f.ofUser(h.Job))
		at := slices.IndexFunc(f.namespaces.items, func(s *share) bool { return s.name == h.Namespace })
		return held < myUsers || held == myUsers && at >= 0 && comesFirst(f.namespaces.items[at].users.items, h.User, job)
	})
}

// comesFirst says whether someone of equal share has a job that comes before another's.
func comesFirst(shares []*share, name string, job *waiting) bool {
	return slices.ContainsFunc(shares, func(s *share) bool { return s.name == name && byRank(s.first(), job) < 0 })
}
