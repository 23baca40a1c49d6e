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
	sums     map[*ledger]amounts
	// largest is the most that one of the jobs holds on each node, cheapest how cheap the cheapest of them is: by its
	// priority, then by its age.
	largest  room
	cheapest []int64
}

// levelsBelow is for how many priorities that is worked out at most.
const levelsBelow = 8

// prepare the priorities for which it is worked out: one above each that a running job has, or if there are too many, of some.
func (c *cycle) prepare() {
	if c.lower != nil {
		return
	}
	c.lower = map[int32]*lower{}
	seen := map[int32]bool{}
	for i := range c.running.jobs {
		if h := &c.running.jobs[i]; h.Preemptible && h.Priority < math.MaxInt32 && !seen[h.Priority] {
			seen[h.Priority] = true
			c.priorities = append(c.priorities, h.Priority+1)
		}
	}
	slices.Sort(c.priorities)
	for most := len(c.priorities); most > levelsBelow; most = len(c.priorities) {
		kept := c.priorities[:0]
		for i, p := range c.priorities {
			if i%2 == (most-1)%2 {
				kept = append(kept, p)
			}
		}
		c.priorities = kept
	}
}

// upTo are the priorities that are worked out up to that of a job, and the first beyond, if that is needed to look at all.
func (c *cycle) upTo(priority int32) []int32 {
	c.prepare()
	at, exact := slices.BinarySearch(c.priorities, priority)
	if !exact && at < len(c.priorities) || exact {
		at++
	}
	return c.priorities[:at]
}

// below is what can be had for a job of some priority at the most: what is held below that, or below the next one up that is
// worked out.
func (c *cycle) below(priority int32) *lower {
	c.prepare()
	if at, _ := slices.BinarySearch(c.priorities, priority); at < len(c.priorities) {
		priority = c.priorities[at]
	} else {
		priority = math.MaxInt32
	}
	if known, ok := c.lower[priority]; ok {
		return known
	}
	made := &lower{priority: priority, none: true, room: newRoom(len(c.nodes.all), c.layout.width),
		largest: newRoom(len(c.nodes.all), c.layout.width), cheapest: make([]int64, len(c.nodes.all)), sums: map[*ledger]amounts{}}
	for i := range made.cheapest {
		made.cheapest[i] = math.MaxInt32
	}
	for i := range c.running.jobs {
		h := &c.running.jobs[i]
		if !h.Preemptible || h.Priority >= priority || h.going {
			continue
		}
		made.none = false
		made.change(c.running, h, 1)
		level, _ := slices.BinarySearch(c.priorities, h.Priority+1)
		cheap := int64(level)<<24 | clamp(int64(c.now.Sub(h.AdmittedAt).Seconds()), 1<<24-1)
		for m := h.from; m < h.to; m++ {
			node := c.running.node[m]
			if node < 0 {
				continue
			}
			made.cheapest[node] = min(made.cheapest[node], cheap)
			request := c.running.requests[c.running.request[m]:]
			for i, largest := range made.largest.of(node) {
				made.largest.of(node)[i] = max(largest, request[i])
			}
		}
	}
	c.lower[priority] = made
	return made
}

// change what is held by a job, with sign -1 take it away.
func (l *lower) change(r *running, h *held, sign int64) {
	r.move(h, l.room, sign)
	h.scopes.each(func(of *ledger, need *amounts) {
		sum := l.sums[of]
		for i := range sum {
			sum[i] += sign * need[i]
		}
		l.sums[of] = sum
	})
}

// suffice says whether the limits of a job would do if all of them went.
func (l *lower) suffice(s *scopes) bool {
	for at := range s {
		if s[at].ledger == nil {
			continue
		}
		used, freed := s[at].soonest(), l.sums[s[at].ledger]
		used.subtract(&freed)
		if s[at].short(&s[at].need, used) >= 0 {
			return false
		}
	}
	return true
}
