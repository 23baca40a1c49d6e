package scheduler

import "slices"

// running are the jobs that hold something, with the rows of room that they hold.
type running struct {
	jobs []held
	// node of each member, -1 for one that is not among the nodes; and where its requests begin in requests.
	node     []int32
	request  []int32
	requests []int64
	// byNode are the jobs on each node, once that was asked for; starts is where those of a node begin.
	byNode, starts []int32
}

// held is a running job.
type held struct {
	*Job
	// from and to are its members.
	from, to int32
	need     amounts
	scopes   scopes
	queue    *queue
	// going says that it is being stopped, or is to be since this cycle.
	going bool
}

func runningOf(all []Job, l *layout, n *nodes) *running {
	r := &running{jobs: make([]held, len(all))}
	members := 0
	for i := range all {
		members += len(all[i].Placement)
	}
	r.node, r.request = make([]int32, 0, members), make([]int32, 0, members)
	r.requests = make([]int64, 0, len(all)*l.width)
	for i := range all {
		job := &all[i]
		h := &r.jobs[i]
		*h = held{Job: job, from: int32(len(r.node)), need: needOf(job), going: job.Stopping}
		placed := job.Placement
		for g := range job.Groups {
			group := &job.Groups[g]
			count := min(max(group.Count, 0), len(placed))
			if count == 0 {
				continue
			}
			at := int32(len(r.requests))
			for range l.width {
				r.requests = append(r.requests, 0)
			}
			l.member(r.requests[at:], &group.Requests)
			for _, name := range placed[:count] {
				node, ok := n.at[name]
				if !ok {
					node = -1
				}
				r.node = append(r.node, node)
				r.request = append(r.request, at)
			}
			placed = placed[count:]
		}
		h.to = int32(len(r.node))
	}
	return r
}

// move gives what a job holds to rows of room, or takes it, with sign -1.
func (r *running) move(h *held, to room, sign int64) {
	for m := h.from; m < h.to; m++ {
		if node := r.node[m]; node >= 0 {
			give(to.of(node), r.requests[r.request[m]:][:to.width], sign)
		}
	}
}

// on are the jobs that are on a node, of so many; one with several members there several times.
func (r *running) on(node int32, of int) []int32 {
	if r.starts == nil {
		r.starts = make([]int32, of+1)
		for _, at := range r.node {
			if at >= 0 {
				r.starts[at+1]++
			}
		}
		for i := range of {
			r.starts[i+1] += r.starts[i]
		}
		r.byNode = make([]int32, r.starts[of])
		next := slices.Clone(r.starts[:of])
		for i := range r.jobs {
			for _, at := range r.node[r.jobs[i].from:r.jobs[i].to] {
				if at >= 0 {
					r.byNode[next[at]] = int32(i)
					next[at]++
				}
			}
		}
	}
	return r.byNode[r.starts[node]:r.starts[node+1]]
}
