package scheduler

import (
	"cmp"
	"slices"
	"strings"
)

// walks is for how many jobs of a cycle all running jobs are looked at one by one.
const walks = 4

// choose the jobs that must go for a job to fit: none when no choice suffices. The highest priority among them is as low as can
// be; then few and large ones go rather than many, then the youngest; and none that could stay.
func (c *cycle) choose(job *waiting, s *scopes) []*held {
	for _, below := range c.upTo(job.Priority) {
		if below.none || !below.suffice(s) {
			continue
		}
		then := c.copyOf(&c.buffers[0])
		give(then.all, below.room.all, 1)
		if !job.form.mayFit(then.of) {
			continue
		}
		cost := c.costs(job.form, then, below)
		if victims := c.spare(job, s, c.onBestNodes(job, s, then, below, cost), cost); len(victims) > 0 {
			return victims
		}
	}
	if c.walked == walks {
		return nil
	}
	c.walked++
	return c.spare(job, s, c.walk(job, s), make([]int64, len(c.nodes.all)))
}

// walk over the running jobs from the cheapest on, until so many have gone that a job fits.
func (c *cycle) walk(job *waiting, s *scopes) []*held {
	t := c.tally(job.form, c.copyOf(&c.buffers[1]))
	var free freed
	var going []*held
	all := c.candidates()
	for i := 0; ; i++ {
		at := all.at(i)
		if at < 0 || c.running.jobs[at].Priority >= job.Priority {
			return nil
		}
		h := &c.running.jobs[at]
		if !c.mayTake(job, h) {
			continue
		}
		t.move(h, 1)
		free.add(s, h, job.queue, 1)
		going = append(going, h)
		if t.good == 0 {
			continue
		}
		if _, _, short := s.short((*ledger).soonest, &free); !short && t.fit() {
			return going
		}
	}
}

// costs of nodes: how many jobs must about go from one for one more member to fit, then what priority and age the cheapest
// of them is. Then is the room when all have gone.
func (c *cycle) costs(f *form, then room, below *lower) []int64 {
	cost := make([]int64, len(c.nodes.all))
	if len(f.parts) == 0 {
		return cost
	}
	request := f.parts[0].shape.request
	for _, node := range f.parts[0].shape.class.nodes {
		row, scarce, worst := c.future.of(node), -1, 0.0
		for i, need := range request {
			if lack := need - row[i]; need > 0 && lack > 0 && float64(lack)/float64(need) > worst {
				scarce, worst = i, float64(lack)/float64(need)
			}
		}
		if scarce < 0 || !fits(then.of(node), request) {
			continue
		}
		number := int64(1)
		if largest := below.largest.of(node)[scarce]; largest > 0 {
			number = (request[scarce] - row[scarce] + largest - 1) / largest
		}
		cost[node] = clamp(number, 1<<20-1)<<32 | below.cheapest[node]
	}
	return cost
}

// onBestNodes are the jobs below a priority that are on the nodes that cost the least, and those that are needed for quotas.
func (c *cycle) onBestNodes(job *waiting, s *scopes, then room, below *lower, cost []int64) []*held {
	var chosen []*held
	var free freed
	taken := map[int32]bool{}
	take := func(at int32) {
		h := &c.running.jobs[at]
		if !taken[at] && h.Priority < below.priority && c.mayTake(job, h) {
			taken[at] = true
			free.add(s, h, job.queue, 1)
			chosen = append(chosen, h)
		}
	}
	if !c.roomFor(job.form, c.future) {
		placed, ok := c.find(job.form, then, cost)
		if !ok {
			return nil
		}
		slices.Sort(placed)
		for _, node := range slices.Compact(placed) {
			for _, at := range c.running.on(node, len(c.nodes.all)) {
				take(at)
			}
		}
	}
	for i := 0; ; i++ {
		level, sum, short := s.short((*ledger).soonest, &free)
		if !short {
			return chosen
		}
		at := c.candidates().at(i)
		if at < 0 || c.running.jobs[at].Priority >= below.priority {
			return chosen
		}
		var frees freed
		if frees.add(s, &c.running.jobs[at], job.queue, 1); frees[level][sum] > 0 {
			take(at)
		}
	}
}

// spare those of the chosen jobs without which the job fits too, the most valuable first; what is left is none too many. None is
// left when all of them do not suffice.
func (c *cycle) spare(job *waiting, s *scopes, chosen []*held, cost []int64) []*held {
	t := c.tally(job.form, c.copyOf(&c.buffers[1]))
	var free freed
	costOf := make(map[*held]int64, len(chosen))
	for _, h := range chosen {
		t.move(h, 1)
		free.add(s, h, job.queue, 1)
		least := int64(-1)
		for _, node := range c.running.node[h.from:h.to] {
			if node >= 0 && (least < 0 || cost[node] < least) {
				least = cost[node]
			}
		}
		costOf[h] = least
	}
	slices.SortFunc(chosen, func(a, b *held) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(costOf[b]>>32, costOf[a]>>32),
			cmp.Compare(a.need[gpuSum], b.need[gpuSum]), cmp.Compare(a.need[cpuSum], b.need[cpuSum]),
			a.AdmittedAt.Compare(b.AdmittedAt), strings.Compare(string(a.UID), string(b.UID)))
	})
	if _, _, short := s.short((*ledger).soonest, &free); short || !t.fit() {
		return nil
	}
	var victims []*held
	for _, h := range chosen {
		t.move(h, -1)
		free.add(s, h, job.queue, -1)
		if _, _, short := s.short((*ledger).soonest, &free); short || !t.fit() {
			t.move(h, 1)
			free.add(s, h, job.queue, 1)
			victims = append(victims, h)
		}
	}
	return victims
}

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
		f[at].add(&h.scopes[at].need, sign)
	}
}
