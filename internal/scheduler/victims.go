package scheduler

import (
	"cmp"
	"slices"
	"strings"
)

// candidates are the running jobs that may lose their place, the cheapest first: of the lowest priority, among these the youngest.
func (c *cycle) candidates() *byOrder {
	if c.cheapest == nil {
		keys := make([]orderKey, 0, len(c.running.jobs))
		for i := range c.running.jobs {
			if h := &c.running.jobs[i]; h.Preemptible && !h.going {
				keys = append(keys, orderKey{first: int64(h.Priority), second: -h.AdmittedAt.UnixMilli(), uid: string(h.UID), job: int32(i)})
			}
		}
		c.cheapest = newByOrder(keys)
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

// freed is what jobs that give their place back free of each level that limits a job.
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

// short is the narrowest level that has still not enough.
func (f *freed) short(s *scopes) (level, int, bool) {
	for at := range s {
		if s[at].ledger == nil {
			continue
		}
		used := s[at].soonest()
		used.subtract(&f[at])
		if sum := s[at].short(&s[at].need, used); sum >= 0 {
			return level(at), sum, true
		}
	}
	return 0, 0, false
}

// helps says whether a running job holds something of what a level is short of.
func (f *freed) helps(s *scopes, h *held, of *queue, at level, sum int) bool {
	var one freed
	one.add(s, h, of, 1)
	return one[at][sum] > 0
}

// choose the jobs that must go for a job to fit: none when no choice suffices. The choice has the lowest highest priority; of
// those the fewest, largest and youngest that a walk over them leaves, and none that could stay.
func (c *cycle) choose(job *waiting, s *scopes) []*held {
	t := c.tally(job.form, c.future.clone())
	var free freed
	var going []*held
	firsts := make([]int64, len(c.nodes.all))
	all := c.candidates()
	enough := false
	for i := 0; !enough; i++ {
		at := all.at(i)
		if at < 0 {
			break
		}
		h := &c.running.jobs[at]
		if h.Priority >= job.Priority {
			break
		}
		if !c.mayTake(job, h) {
			continue
		}
		t.move(h, 1)
		free.add(s, h, job.queue, 1)
		going = append(going, h)
		for _, node := range c.running.node[h.from:h.to] {
			if node >= 0 && firsts[node] == 0 {
				firsts[node] = int64(len(going))
			}
		}
		// All jobs of one priority are looked at together, to choose the fewest of them.
		if next := all.at(i + 1); next < 0 || c.running.jobs[next].Priority > h.Priority {
			_, _, short := free.short(s)
			enough = !short && t.fit()
		}
	}
	if !enough {
		return nil
	}
	cost := c.costs(job.form, t.room, going, firsts)
	chosen := c.onBestNodes(job, s, t.room, going, cost)
	return c.spare(job, s, chosen, cost)
}

// costs of nodes: how many jobs must about go from one for one more member to fit, then how cheap the cheapest of them is. Then is
// the room when all have gone.
func (c *cycle) costs(f *form, then room, going []*held, firsts []int64) []int64 {
	cost := make([]int64, len(c.nodes.all))
	if len(f.parts) == 0 {
		return cost
	}
	request := f.parts[0].shape.request
	scarce := make([]int8, len(cost))
	for node := range cost {
		scarce[node] = -1
		row, worst := c.future.of(int32(node)), 0.0
		for i, need := range request {
			if lack := need - row[i]; need > 0 && lack > 0 && float64(lack)/float64(need) > worst {
				scarce[node], worst = int8(i), float64(lack)/float64(need)
			}
		}
	}
	largest := make([]int64, len(cost))
	for _, h := range going {
		for m := h.from; m < h.to; m++ {
			if node := c.running.node[m]; node >= 0 && scarce[node] >= 0 {
				largest[node] = max(largest[node], c.running.requests[int(c.running.request[m])+int(scarce[node])])
			}
		}
	}
	for node := range cost {
		if scarce[node] < 0 || !fits(then.of(int32(node)), request) {
			continue
		}
		lack := request[scarce[node]] - c.future.of(int32(node))[scarce[node]]
		number := int64(1)
		if largest[node] > 0 {
			number = (lack + largest[node] - 1) / largest[node]
		}
		cost[node] = clamp(number, 1<<20-1)<<32 | firsts[node]
	}
	return cost
}

// onBestNodes are those of the jobs that are on the nodes that cost the least, and those that are needed for quotas.
func (c *cycle) onBestNodes(job *waiting, s *scopes, then room, going []*held, cost []int64) []*held {
	chosen := make([]bool, len(going))
	var free freed
	take := func(i int) {
		chosen[i] = true
		free.add(s, going[i], job.queue, 1)
	}
	if _, ok := c.find(job.form, c.future, nil); !ok {
		placed, _ := c.find(job.form, then, cost)
		used := make([]bool, len(c.nodes.all))
		for _, node := range placed {
			used[node] = true
		}
		for i, h := range going {
			if slices.ContainsFunc(c.running.node[h.from:h.to], func(node int32) bool { return node >= 0 && used[node] }) {
				take(i)
			}
		}
	}
	for i, h := range going {
		at, sum, short := free.short(s)
		if !short {
			break
		}
		if !chosen[i] && free.helps(s, h, job.queue, at, sum) {
			take(i)
		}
	}
	if _, _, short := free.short(s); short {
		return going
	}
	var some []*held
	for i, h := range going {
		if chosen[i] {
			some = append(some, h)
		}
	}
	return some
}

// spare those of the chosen jobs without which the job fits too, the most valuable first.
func (c *cycle) spare(job *waiting, s *scopes, chosen []*held, cost []int64) []*held {
	t := c.tally(job.form, c.future.clone())
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
	var victims []*held
	for _, h := range chosen {
		t.move(h, -1)
		free.add(s, h, job.queue, -1)
		if _, _, short := free.short(s); short || !t.fit() {
			t.move(h, 1)
			free.add(s, h, job.queue, 1)
			victims = append(victims, h)
		}
	}
	return victims
}
