package scheduler

// reservations is for how many jobs room is kept in a cycle, each on nodes of another class.
const reservations = 8

// isHopeless says whether a form does not even fit on nodes on which no job runs.
func (c *cycle) isHopeless(f *form) bool {
	if f.missing != "" {
		return true
	}
	if !f.known {
		f.hopeless, f.known = !c.roomFor(f, c.empty), true
	}
	return f.hopeless
}

// awaitGoing keeps room for a job that fits once the jobs are gone that are being stopped, so that no other job gets it and no
// further job is stopped for it.
func (c *cycle) awaitGoing(job *waiting, s *scopes) bool {
	if c.going == 0 || job.form.soonFull == c.victims {
		return false
	}
	if _, _, short := s.short((*ledger).soonest, nil); short {
		return false
	}
	placed, ok := c.find(job.form, c.future, nil)
	if !ok {
		job.form.soonFull = c.victims
		return false
	}
	c.keep(job, s, placed, nil)
	return true
}

// keep room for a job on nodes, of what they will have left when those are gone that it waits for, nil for those that are being
// stopped: later jobs get only what is left of that, too.
func (c *cycle) keep(job *waiting, s *scopes, placed []int32, when *room) {
	f := job.form
	f.give(c.future, placed, -1)
	left := c.future
	if when != nil {
		left = *when
		f.give(left, placed, -1)
	}
	for _, p := range f.parts {
		for _, node := range placed[p.at : p.at+p.count] {
			usable, then := c.usable.of(node), left.of(node)
			for i, need := range p.shape.request {
				if need > 0 {
					usable[i] = min(usable[i], then[i])
				}
			}
		}
	}
	c.changed = append(c.changed, placed...)
	job.kept = placed
	s.claim(job, levels-1)
}

// claim sums for a job that waits, up to a level.
func (s *scopes) claim(job *waiting, upTo level) {
	for at := range s {
		if l := s[at].ledger; l != nil && level(at) <= upTo {
			l.claimed.add(&s[at].need, 1)
			if l.claimant == nil {
				l.claimant = job
			}
		}
	}
}

// reserve keeps room for the first job of those that wait for the same nodes. It is not known when the running jobs end, so they are
// taken to end in the order in which they were admitted. What was kept in one cycle is there in the next, because the jobs that
// come later are not let onto it: so each job's turn comes after finitely many of those that ran before it.
func (c *cycle) reserve(job *waiting, s *scopes) {
	f := job.form
	if len(f.parts) == 0 || f.parts[0].shape.class.reserved != nil || c.reserved == reservations {
		return
	}
	c.reserved++
	for _, p := range f.parts {
		p.shape.class.reserved = job
	}
	t := c.tally(f, c.copyOf(&c.buffers[1]))
	if !c.releaseOldest(t) {
		return
	}
	if placed, ok := c.find(f, t.room, nil); ok {
		c.keep(job, s, placed, &t.room)
	}
}

// releaseOldest lets the jobs end that run longest, until a form fits; those of this cycle end last.
func (c *cycle) releaseOldest(t *tally) bool {
	if t.fit() {
		return true
	}
	single := len(t.form.parts) == 1
	oldest := c.oldest()
	for i := 0; ; i++ {
		at := oldest.at(i)
		if at < 0 {
			break
		}
		if h := &c.running.jobs[at]; !h.going {
			t.move(h, 1)
		}
		// Packing parts of different shapes takes long: that is tried after ever more jobs.
		if (single || i&(i+1) == 0) && t.fit() {
			return true
		}
	}
	for _, fresh := range c.fresh {
		if !single && t.fit() {
			return true
		}
		fresh.form.give(t.room, fresh.placed, 1)
		for _, node := range fresh.placed {
			t.recount(node)
		}
		if single && t.fit() {
			return true
		}
	}
	return t.fit()
}

// oldest are the running jobs that hold room, those first that run longest.
func (c *cycle) oldest() *byOrder {
	if c.byAge == nil {
		keys := make([]orderKey, 0, len(c.running.jobs))
		for i := range c.running.jobs {
			if h := &c.running.jobs[i]; h.to > h.from {
				keys = append(keys, orderKey{first: h.AdmittedAt.Unix(), second: int64(h.AdmittedAt.Nanosecond()), job: int32(i)})
			}
		}
		c.byAge = c.running.inOrder(keys)
	}
	return c.byAge
}
