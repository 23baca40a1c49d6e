package scheduler

import (
	"cmp"
	"slices"
)

// score of a node for a member: the fewer GPUs, further extended resources and CPU are left, the better, so that
// whole nodes stay free for gangs. A member without GPUs goes where the fewest are free. The least is the best.
func score(row, request []int64) int64 {
	special := int64(0)
	for i := extended; i < len(row); i++ {
		special += clamp(row[i]-request[i], 1<<10-1)
	}
	return clamp(row[gpus]-request[gpus], 1<<10-1)<<52 | clamp(special, 1<<12-1)<<40 | clamp(row[cpu]-request[cpu], 1<<40-1)
}

func clamp(n, most int64) int64 { return min(max(n, 0), most) }

// place finds the nodes of all members in what is usable, and takes their room; all or nothing.
func (c *cycle) place(f *form) ([]int32, bool) {
	placed, ok := c.find(f, c.usable)
	if !ok {
		return nil, false
	}
	c.take(f, placed, c.free)
	c.take(f, placed, c.usable)
	return placed, true
}

func (c *cycle) take(f *form, placed []int32, from room) {
	at := 0
	for _, p := range f.parts {
		for range p.count {
			give(from.of(placed[at]), p.shape.request, -1)
			at++
		}
	}
}

// find the nodes of all members in some room.
func (c *cycle) find(f *form, in room) ([]int32, bool) {
	if f.topology == "" || len(f.parts) == 0 {
		return c.pack(f, in, nil)
	}
	var best []int32
	found := false
	for _, d := range f.parts[0].shape.class.byTopology(c.nodes, f.topology) {
		placed, ok := c.pack(f, in, d.nodes)
		if ok && (!found || len(d.nodes) < len(best)) {
			best, found = placed, true
		}
	}
	return best, found
}

// pack members on the nodes that suit them best, only those of a domain unless it is nil. What was taken is given back.
func (c *cycle) pack(f *form, in room, domain []int32) ([]int32, bool) {
	placed := make([]int32, 0, f.members)
	type choice struct {
		node  int32
		score int64
	}
	var choices []choice
	complete := true
	for _, p := range f.parts {
		candidates := p.shape.class.nodes
		if domain != nil {
			candidates = within(candidates, domain)
		}
		choices = choices[:0]
		for _, node := range candidates {
			if row := in.of(node); fits(row, p.shape.request) {
				choices = append(choices, choice{node, score(row, p.shape.request)})
			}
		}
		slices.SortFunc(choices, func(a, b choice) int {
			return cmp.Or(cmp.Compare(a.score, b.score), cmp.Compare(a.node, b.node))
		})
		left := p.count
		for _, at := range choices {
			if left == 0 {
				break
			}
			row := in.of(at.node)
			n := count(row, p.shape.request, left)
			give(row, p.shape.request, -int64(n))
			for range n {
				placed = append(placed, at.node)
			}
			left -= n
		}
		if left > 0 {
			complete = false
			break
		}
	}
	at := 0
	for _, p := range f.parts {
		for range min(p.count, len(placed)-at) {
			give(in.of(placed[at]), p.shape.request, 1)
			at++
		}
	}
	return placed, complete
}
