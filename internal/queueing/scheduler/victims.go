package scheduler

// candidates are the running jobs that may lose their place, the cheapest first: of the lowest priority, among these the youngest.
func (c *cycle) candidates() *byOrder {
	if c.cheapest == nil {
		keys := make([]orderKey, 0, len(c.running.jobs))
		for i := range c.running.jobs {
			if h := &c.running.jobs[i]; h.Preemptible && !h.going {
				keys = append(keys, orderKey{first: int64(h.Priority), second: -h.AdmittedAt.UnixMilli(), job: int32(i)})
			}
		}
		c.cheapest = c.running.inOrder(keys)
	}
	return c.cheapest
}

// mayTake says whether a job may take another's place: that must be preemptible and of lower priority, and it must come after the
// job in the order in which jobs are looked at once it waits again, or it would have its place back at once.
func (c *cycle) mayTake(job *waiting, h *held) bool {
	if !h.Preemptible || h.going || h.Priority >= job.Priority || heldRank(h.Job) >= job.rank {
		return false
	}
	if job.queue == h.queue {
		return true
	}
	return !job.queue.waitsBorrowing || h.queue != nil && h.queue.hasBorrowed()
}

// freed is what jobs that are evicted free of each level that limits a job.
type freed [levels]amounts

// add what a running job holds, with sign -1 take it away.
func (f *freed) add(s *scopes, h *held, of *queue, sign int64) {
	for at := range s {
		if s[at].ledger == nil || s[at].ledger != h.scopes[at].ledger {
			continue
		}
		// What a queue of the cohort holds of its own quota is not taken from it for the quota of another.
		if level(at) == ofCohort && h.queue != of && !h.queue.hasBorrowed() {
			continue
		}
		for i, amount := range h.scopes[at].need {
			f[at][i] += sign * amount
		}
	}
}

// helps says whether a running job holds something of what a level is short of.
func (f *freed) helps(s *scopes, h *held, of *queue, at level, sum int) bool {
	var one freed
	one.add(s, h, of, 1)
	return one[at][sum] > 0
}
