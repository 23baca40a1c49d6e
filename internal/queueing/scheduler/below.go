package scheduler

import (
	"math"
	"slices"
)

// lower is what the preemptible jobs below a priority hold.
type lower struct {
	priority int32
	none     bool
	room     room
	// at is its place among those that are worked out, where ledgers keep their sums.
	at int
	// largest is the most that one of the jobs holds on each node, cheapest how cheap the cheapest of them is: by its
	// priority, then by its age.
	largest  room
	cheapest []int64
}

// levelsBelow is for how many priorities that is worked out at most, beside all of them.
const levelsBelow = 8

// prepare works out what jobs hold below the priorities that running jobs have, or if these are too many, below some.
func (c *cycle) prepare() {
	if c.lower != nil {
		return
	}
	var priorities []int32
	seen := map[int32]bool{}
	for i := range c.running.jobs {
		if h := &c.running.jobs[i]; h.Preemptible && h.Priority < math.MaxInt32 && !seen[h.Priority] {
			seen[h.Priority] = true
			priorities = append(priorities, h.Priority+1)
		}
	}
	slices.Sort(priorities)
	for most := len(priorities); most > levelsBelow; most = len(priorities) {
		kept := priorities[:0]
		for i, p := range priorities {
			if i%2 == (most-1)%2 {
				kept = append(kept, p)
			}
		}
		priorities = kept
	}
	priorities = append(priorities, math.MaxInt32)
	c.priorities = priorities
	count := len(c.nodes.all)
	for at, p := range c.priorities {
		c.lower = append(c.lower, &lower{
			priority: p, at: at, none: true, room: newRoom(count, c.layout.width), largest: newRoom(count, c.layout.width),
			cheapest: slices.Repeat([]int64{math.MaxInt32}, count),
		})
	}
	for i := range c.running.jobs {
		if h := &c.running.jobs[i]; h.Preemptible && !h.going {
			at, _ := slices.BinarySearch(c.priorities, h.Priority+1)
			c.lower[min(at, len(c.lower)-1)].add(c, h)
		}
	}
	for at := 1; at < len(c.lower); at++ {
		c.lower[at].include(c.lower[at-1])
	}
	for i := range c.running.jobs {
		c.running.jobs[i].scopes.each(func(l *ledger, _ *amounts) {
			if l.summed {
				return
			}
			l.summed = true
			for at := 1; at < len(c.lower); at++ {
				l.below[at].add(&l.below[at-1], 1)
			}
		})
	}
}

// add a job that belongs to a priority.
func (l *lower) add(c *cycle, h *held) {
	l.none = false
	c.running.move(h, l.room, 1)
	h.scopes.each(func(of *ledger, need *amounts) { of.below[l.at].add(need, 1) })
	cheap := int64(l.at)<<24 | clamp(int64(c.now.Sub(h.AdmittedAt).Seconds()), 1<<24-1)
	for m := h.from; m < h.to; m++ {
		node := c.running.node[m]
		if node < 0 {
			continue
		}
		l.cheapest[node] = min(l.cheapest[node], cheap)
		request, row := c.running.requests[c.running.request[m]:], l.largest.of(node)
		for i := range row {
			row[i] = max(row[i], request[i])
		}
	}
}

// include what is below the next lower priority.
func (l *lower) include(other *lower) {
	l.none = l.none && other.none
	for i := range l.room.all {
		l.room.all[i] += other.room.all[i]
		l.largest.all[i] = max(l.largest.all[i], other.largest.all[i])
	}
	for i := range l.cheapest {
		l.cheapest[i] = min(l.cheapest[i], other.cheapest[i])
	}
}

// upTo are what is worked out up to a priority, the lowest first, and the next beyond if that is needed to look at all.
func (c *cycle) upTo(priority int32) []*lower {
	c.prepare()
	at, _ := slices.BinarySearch(c.priorities, priority)
	return c.lower[:min(at+1, len(c.lower))]
}

// suffice says whether the limits of a job would do if all of them went.
func (l *lower) suffice(s *scopes) bool {
	_, _, short := s.short(func(of *ledger) amounts {
		used := of.soonest()
		used.add(&of.below[l.at], -1)
		return used
	}, nil)
	return !short
}
