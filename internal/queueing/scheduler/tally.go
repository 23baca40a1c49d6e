package scheduler

import "slices"

// tally counts how many members of a form fit while jobs give their room back one after the other: what a job changes is
// counted on its nodes only.
type tally struct {
	cycle *cycle
	form  *form
	room  room
	// fits are, for each part, the members that fit on each node, -1 on nodes that do not match.
	fits [][]int32
	// domain of each node, -1 for none; all are in one unless the form has a topology.
	domain []int32
	// members that fit, for each part and domain; enough of how many parts do in each domain; good are the domains where
	// that is all of them.
	members [][]int
	enough  []int
	good    int
}

// tally begins with some room, which it changes.
func (c *cycle) tally(f *form, in room) *tally {
	t := &tally{cycle: c, form: f, room: in, domain: make([]int32, len(c.nodes.all))}
	domains := 1
	if f.topology != "" && len(f.parts) > 0 {
		t.domain = slices.Repeat([]int32{-1}, len(c.nodes.all))
		all := f.parts[0].shape.class.byTopology(c.nodes, f.topology)
		domains = len(all)
		for d := range all {
			for _, node := range all[d].nodes {
				t.domain[node] = int32(d)
			}
		}
	}
	t.enough = make([]int, domains)
	for _, p := range f.parts {
		counts := slices.Repeat([]int32{-1}, len(c.nodes.all))
		for _, node := range p.shape.class.nodes {
			counts[node] = 0
		}
		t.fits, t.members = append(t.fits, counts), append(t.members, make([]int, domains))
	}
	if len(f.parts) == 0 {
		t.good = domains
	}
	for node := range t.domain {
		t.recount(int32(node))
	}
	return t
}

// move gives the room of a job back, or takes it again, with sign -1.
func (t *tally) move(h *held, sign int64) {
	r := t.cycle.running
	r.move(h, t.room, sign)
	for _, node := range r.node[h.from:h.to] {
		if node >= 0 {
			t.recount(node)
		}
	}
}

func (t *tally) recount(node int32) {
	d := t.domain[node]
	if d < 0 {
		return
	}
	for i := range t.fits {
		before := t.fits[i][node]
		if before < 0 {
			continue
		}
		p := &t.form.parts[i]
		now := int32(count(t.room.of(node), p.shape.request, p.count))
		if now == before {
			continue
		}
		t.fits[i][node] = now
		had := t.members[i][d] >= p.count
		t.members[i][d] += int(now - before)
		if has := t.members[i][d] >= p.count; has != had {
			t.cross(d, has)
		}
	}
}

// cross notes that one part more, or less, has enough room in a domain.
func (t *tally) cross(d int32, has bool) {
	all := len(t.form.parts)
	if has {
		if t.enough[d]++; t.enough[d] == all {
			t.good++
		}
		return
	}
	if t.enough[d] == all {
		t.good--
	}
	t.enough[d]--
}

// fit says whether all members have room. Parts of different shapes can be in one another's way, so these are packed.
func (t *tally) fit() bool {
	if t.good == 0 {
		return false
	}
	if len(t.form.parts) == 1 {
		return true
	}
	_, ok := t.cycle.find(t.form, t.room, nil)
	return ok
}
