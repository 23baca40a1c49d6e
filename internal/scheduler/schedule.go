package scheduler

import "time"

// verdict of a cycle on a job.
type verdict int

const (
	admitted verdict = iota
	noQueue
	noCluster
	suspended
	overQuota
	noRoom
)

// cycle is the state of one call of Schedule.
type cycle struct {
	now     time.Time
	layout  layout
	nodes   *nodes
	forms   *forms
	queues  map[string]*queue
	running *running
	// free is what nodes have left, less what was admitted in the cycle; usable is what of it later jobs may have.
	free, usable room
	// total of what the nodes have, for shares.
	total amounts
	// waits are the jobs that wait, in the order in which they were looked at.
	waits []*waiting
	out   Decisions
}

// Schedule decides which pending jobs are admitted.
func Schedule(s Snapshot) Decisions {
	c := begin(&s)
	order := c.turns(s.Pending)
	for !order.empty() {
		at := order.pop()
		job := at.job
		job.verdict = c.decide(job)
		if job.verdict != admitted {
			c.waits = append(c.waits, job)
		}
		at.line.pass(job.verdict == admitted)
		order.add(at.line)
	}
	c.explain()
	return c.out
}

func begin(s *Snapshot) *cycle {
	c := &cycle{now: s.Now, layout: layoutOf(s.Pending), nodes: nodesOf(s.Nodes), queues: queuesOf(s.Queues)}
	clusters := clustersOf(s.Clusters, c.nodes)
	c.forms = newForms(c.layout, c.nodes, clusters)
	c.free = newRoom(len(c.nodes.all), c.layout.width)
	for i, node := range c.nodes.all {
		row := c.free.of(int32(i))
		c.layout.add(row, &node.Allocatable)
		c.total[gpuSum] += node.Allocatable.GPUs
		c.total[cpuSum] += node.Allocatable.MilliCPU
		c.total[memorySum] += node.Allocatable.Memory
		c.layout.subtract(row, &node.Requested)
	}
	c.running = runningOf(s.Running, &c.layout, c.nodes)
	for i := range c.running.jobs {
		h := &c.running.jobs[i]
		c.running.move(h, c.free, -1)
		h.queue = c.queues[h.Queue]
		h.scopes = scopesOf(h.Job, &h.need, h.queue, clusters[h.Cluster])
		c.hold(h.Job, &h.scopes, &h.need, h.queue, h.going)
	}
	c.usable = c.free.clone()
	return c
}

// hold books what a job holds.
func (c *cycle) hold(job *Job, s *scopes, need *amounts, q *queue, going bool) {
	s.each(func(l *ledger, need *amounts) {
		l.used.add(need)
		if going {
			l.soon.add(need)
		}
	})
	if q == nil || !q.fairShare() {
		return
	}
	ledgerFor(q.members, tenant{job.Namespace, job.User}, nil).used.add(need)
	if s[ofNamespace].ledger == nil {
		ledgerFor(q.namespaces, job.Namespace, nil).used.add(need)
	}
}

// turns gives the pending jobs their order.
func (c *cycle) turns(pending []Job) *turns {
	lines := map[string][]*waiting{}
	for i := range pending {
		w := newWaiting(&pending[i], c.now)
		w.queue, w.form = c.queues[w.Queue], c.forms.of(w.Job)
		lines[w.Queue] = append(lines[w.Queue], w)
	}
	order := newTurns()
	for name, all := range lines {
		order.add(c.lineOf(c.queues[name], all))
	}
	return order
}

// decide on a job whose turn it is.
func (c *cycle) decide(job *waiting) verdict {
	switch {
	case job.Queue != "" && job.queue == nil:
		return noQueue
	case job.queue != nil && job.queue.Suspended:
		return suspended
	case job.Cluster != "" && job.form.cluster == nil:
		return noCluster
	}
	s := scopesOf(job.Job, &job.form.need, job.queue, job.form.cluster)
	if _, _, short := s.short((*ledger).now); short {
		return overQuota
	}
	if job.form.full {
		return noRoom
	}
	placed, ok := c.place(job.form)
	if !ok {
		job.form.full = true
		return noRoom
	}
	c.hold(job.Job, &s, &job.form.need, job.queue, false)
	c.out.Admitted = append(c.out.Admitted, Admission{UID: job.UID, Nodes: c.names(placed), Cluster: job.Cluster})
	return admitted
}

func (c *cycle) names(placed []int32) []string {
	names := make([]string, len(placed))
	for i, node := range placed {
		names[i] = c.nodes.all[node].Name
	}
	return names
}
