package scheduler

import (
	"cmp"
	"math"
	"slices"
)

// choice is a node that a member could go to. The least score is the best.
type choice struct {
	score int64
	node  int32
}

func better(a, b choice) bool {
	return a.score < b.score || a.score == b.score && a.node < b.node
}

// score of a node for a member: the fewer GPUs, other extended resources and CPU would be left, the better, so that whole nodes
// stay free for gangs. A member without GPUs goes where the fewest are free.
func score(row, request []int64) int64 {
	special := int64(0)
	for i := extended; i < len(row); i++ {
		special += clamp(row[i]-request[i], 1<<10-1)
	}
	return clamp(row[gpus]-request[gpus], 1<<10-1)<<52 | clamp(special, 1<<12-1)<<40 | clamp(row[cpu]-request[cpu], 1<<40-1)
}

func clamp(n, most int64) int64 { return min(max(n, 0), most) }

// mayFit says whether the nodes have room for each part by itself, wherever.
func (f *form) mayFit(row func(int32) []int64) bool {
	for i := range f.parts {
		p := &f.parts[i]
		left := p.count
		for _, node := range p.shape.class.nodes {
			if left -= count(row(node), p.shape.request, left); left == 0 {
				break
			}
		}
		if left > 0 {
			return false
		}
	}
	return true
}

// roomFor says whether all members fit in some room.
func (c *cycle) roomFor(f *form, in room) bool {
	if !f.mayFit(in.of) {
		return false
	}
	if len(f.parts) <= 1 && f.topology == "" {
		return true
	}
	_, ok := c.find(f, in, nil)
	return ok
}

// find the nodes of all members in some room, which it leaves as it is; false when they do not all fit. Nodes of less cost
// come first, if there are costs.
func (c *cycle) find(f *form, in room, cost []int64) ([]int32, bool) {
	if f.topology == "" || len(f.parts) == 0 {
		return c.pack(f, in, nil, cost)
	}
	all := f.parts[0].shape.class.byTopology(c.nodes, f.topology)
	type option struct{ left, at int }
	var options []option
	for at := range all {
		members := 0
		for _, node := range all[at].nodes {
			members += count(in.of(node), f.parts[0].shape.request, math.MaxInt32)
		}
		if members >= f.parts[0].count {
			options = append(options, option{members, at})
		}
	}
	slices.SortFunc(options, func(a, b option) int { return cmp.Or(cmp.Compare(a.left, b.left), cmp.Compare(a.at, b.at)) })
	for _, o := range options {
		if placed, ok := c.pack(f, in, all[o.at].nodes, cost); ok {
			return placed, true
		}
	}
	return nil, false
}

// pack members on the nodes that suit them best, only those of a domain unless it is nil. Where they do not fit that way, each of
// the other parts comes first once, since what one leaves may not suit the next.
func (c *cycle) pack(f *form, in room, domain []int32, cost []int64) ([]int32, bool) {
	placed := make([]int32, f.members)
	fit := c.packInOrder(f.parts, placed, in, domain, cost)
	for first := 1; fit > 0 && fit < len(f.parts) && first < len(f.parts); first++ {
		fit = c.packInOrder(slices.Concat(f.parts[first:first+1], f.parts[:first], f.parts[first+1:]), placed, in, domain, cost)
	}
	return placed, fit == len(f.parts)
}

// packInOrder packs one part after the other, and says how many fit before one does not.
func (c *cycle) packInOrder(parts []part, placed []int32, in room, domain []int32, cost []int64) int {
	for i := range parts {
		p := &parts[i]
		done := c.packPart(p, placed, in, domain, cost)
		if done < p.count {
			p.give(in, placed[:p.at+done], 1)
			giveEach(parts[:i], in, placed, 1)
			return i
		}
	}
	giveEach(parts, in, placed, 1)
	return len(parts)
}

// packPart packs as many members of a part as fit, and says how many.
func (c *cycle) packPart(p *part, placed []int32, in room, domain []int32, cost []int64) int {
	candidates := p.shape.class.nodes
	if domain != nil {
		candidates = within(candidates, domain)
	}
	choices := heap[choice]{less: better, items: c.choices[:0]}
	for _, node := range candidates {
		if row := in.of(node); fits(row, p.shape.request) {
			at := choice{score(row, p.shape.request), node}
			if cost != nil {
				at.score = cost[node]
			}
			choices.items = append(choices.items, at)
		}
	}
	choices.order()
	c.choices = choices.items
	done := 0
	for done < p.count && !choices.empty() {
		node := choices.pop().node
		n := count(in.of(node), p.shape.request, p.count-done)
		give(in.of(node), p.shape.request, -int64(n))
		for range n {
			placed[p.at+done] = node
			done++
		}
	}
	return done
}

// give back the room of the members that were placed, or take it, with sign -1.
func (f *form) give(to room, placed []int32, sign int64) { giveEach(f.parts, to, placed, sign) }

func giveEach(parts []part, to room, placed []int32, sign int64) {
	for i := range parts {
		parts[i].give(to, placed, sign)
	}
}

func (p *part) give(to room, placed []int32, sign int64) {
	for at := p.at; at < min(p.at+p.count, len(placed)); at++ {
		give(to.of(placed[at]), p.shape.request, sign)
	}
}

// place finds the nodes of all members in what is usable now, and takes their room; all or nothing.
func (c *cycle) place(f *form) ([]int32, bool) {
	if f.full || f.tooLarge() {
		f.full = true
		return nil, false
	}
	var placed []int32
	ok := false
	if f.topology == "" {
		placed, ok = c.placeByRanking(f)
	}
	if !ok && (f.topology != "" || len(f.parts) > 1) {
		if placed, ok = c.find(f, c.usable, nil); ok {
			f.give(c.usable, placed, -1)
			c.changed = append(c.changed, placed...)
		}
	}
	if !ok {
		f.full = true
		return nil, false
	}
	f.give(c.free, placed, -1)
	f.give(c.future, placed, -1)
	return placed, true
}

// placeByRanking takes the best node of all for one member after the other.
func (c *cycle) placeByRanking(f *form) ([]int32, bool) {
	placed := make([]int32, 0, f.members)
	for _, p := range f.parts {
		for left := p.count; left > 0; {
			node := c.best(p.shape)
			if node < 0 {
				if len(placed) == 0 {
					p.shape.class.refuse(p.shape.request)
				}
				f.give(c.usable, placed, 1)
				c.changed = append(c.changed, placed...)
				if len(f.parts) == 1 {
					p.shape.tooMany = f.members
				}
				return nil, false
			}
			row := c.usable.of(node)
			n := count(row, p.shape.request, left)
			give(row, p.shape.request, -int64(n))
			c.changed = append(c.changed, node)
			for range n {
				placed = append(placed, node)
			}
			left -= n
		}
	}
	return placed, true
}

// tooLarge says that so much, or less, has been found not to fit in this cycle. What is usable only becomes less.
func (f *form) tooLarge() bool {
	for _, p := range f.parts {
		if p.shape.tooMany > 0 && p.count >= p.shape.tooMany {
			return true
		}
		for _, refused := range p.shape.class.refused {
			if atLeast(p.shape.request, refused) {
				return true
			}
		}
	}
	return false
}

// refuse notes that no node of the class has room for a member.
func (c *class) refuse(request []int64) {
	c.refused = slices.DeleteFunc(c.refused, func(other []int64) bool { return atLeast(other, request) })
	if len(c.refused) < 64 {
		c.refused = append(c.refused, request)
	}
}

func atLeast(a, b []int64) bool {
	for i := range a {
		if a[i] < b[i] {
			return false
		}
	}
	return true
}
