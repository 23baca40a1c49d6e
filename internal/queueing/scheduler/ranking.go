package scheduler

// ranking keeps the nodes that have room for a member of a shape, the best first. Nodes that change are entered again; what
// stands in the heap under an old score is dropped when it comes up.
type ranking struct {
	heap[choice]
	// seen is how many of the cycle's changes it knows.
	seen int
}

// scans is how often a shape looks at all nodes before a ranking is made for it.
const scans = 2

// best node of what is usable for one member; -1 when there is none.
func (c *cycle) best(s *shape) int32 {
	if s.uses++; s.uses <= scans {
		return c.scan(s)
	}
	c.refresh(s)
	for !s.ranking.empty() {
		at := s.ranking.first()
		row := c.usable.of(at.node)
		if fits(row, s.request) && score(row, s.request) == at.score {
			return at.node
		}
		s.ranking.pop()
	}
	return -1
}

func (c *cycle) scan(s *shape) int32 {
	best := choice{node: -1}
	for _, node := range s.class.nodes {
		if row := c.usable.of(node); fits(row, s.request) {
			if at := (choice{score(row, s.request), node}); best.node < 0 || better(at, best) {
				best = at
			}
		}
	}
	return best.node
}

// refresh enters the nodes that have changed.
func (c *cycle) refresh(s *shape) {
	r, changed := s.ranking, s.class.nodes
	if r == nil || len(c.changed)-r.seen > len(changed) {
		r = &ranking{heap: heap[choice]{less: better}}
		s.ranking = r
	} else {
		changed = c.changed[r.seen:]
	}
	for _, node := range changed {
		if row := c.usable.of(node); s.class.has[node] && fits(row, s.request) {
			r.push(choice{score(row, s.request), node})
		}
	}
	r.seen = len(c.changed)
}
