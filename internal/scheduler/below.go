package scheduler

import (
	"math"
	"slices"
)

// lower is what the preemptible jobs below a priority hold.
type lower struct {
	none bool
	room room
	sums map[*ledger]amounts
}

// levelsBelow is for how many priorities that is worked out at most.
const levelsBelow = 8

// below is what can be had for a job of some priority at the most: what is held below that, or the next one up that is worked out.
func (c *cycle) below(priority int32) *lower {
	if c.priorities == nil {
		for i := range c.running.jobs {
			if h := &c.running.jobs[i]; h.Preemptible && !slices.Contains(c.priorities, h.Priority+1) {
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
	if at, _ := slices.BinarySearch(c.priorities, priority); at < len(c.priorities) {
		priority = c.priorities[at]
	} else {
		priority = math.MaxInt32
	}
	if known, ok := c.lower[priority]; ok {
		return known
	}
	made := &lower{none: true, room: newRoom(len(c.nodes.all), c.layout.width), sums: map[*ledger]amounts{}}
	for i := range c.running.jobs {
		h := &c.running.jobs[i]
		if !h.Preemptible || h.Priority >= priority || h.going {
			continue
		}
		made.none = false
		c.running.move(h, made.room, 1)
		h.scopes.each(func(l *ledger, need *amounts) {
			sum := made.sums[l]
			sum.add(need)
			made.sums[l] = sum
		})
	}
	if c.lower == nil {
		c.lower = map[int32]*lower{}
	}
	c.lower[priority] = made
	return made
}
