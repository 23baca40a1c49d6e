package scheduler

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
)

// verdict of a cycle on a job.
type verdict int

const (
	admitted verdict = iota
	unqueued
	noQueue
	notSelected
	tooHigh
	noCluster
	suspended
	// tooMuch of a limit, or of what the nodes have, can never be had.
	tooMuchQuota
	tooMuchRoom
	overQuota
	noRoom
	// behind a job for which what it needs is kept.
	behind
	// afterOther job of its namespace, for which jobs are being stopped: it would raise the namespace's share, and with that
	// put the other behind those that are stopped for it.
	afterOther
	// freeing says that jobs are being stopped to make room for it.
	freeing
)

// cycle is the state of one call of Schedule.
type cycle struct {
	now     time.Time
	layout  layout
	nodes   *nodes
	forms   *forms
	queues  map[string]*queue
	running *running
	// namespaces have labels, and requireQueue says that jobs without a queue wait.
	namespaces   map[string]labels.Set
	requireQueue bool
	// free is what nodes have left, less what was admitted in the cycle; usable is what of it later jobs may have, less what
	// must stay for those before them; future what will be left of it once the jobs are gone that are being stopped, less
	// all that is kept for jobs; empty is what nodes have without any job.
	free, usable, future, empty room
	// changed names the nodes whose usable room has changed, in that order.
	changed []int32
	// byAge and cheapest are orders of the running jobs; lower is what those below some priorities hold.
	byAge, cheapest *byOrder
	lower           []*lower
	priorities      []int32
	scratch         []int64
	choices         []choice
	buffers         [2]room
	// going is the number of jobs that are being stopped, victims of those that are since this cycle; reserved of jobs for
	// which nodes are kept; preempted of jobs for which others are stopped, tried and walked of those that were looked at for that.
	going, victims, reserved, preempted, tried, walked int
	// fresh are the jobs admitted in this cycle.
	fresh []fresh
	// before are the forms of jobs that wait for room.
	before []*form
	// total of what the nodes have, for shares.
	total amounts
	// waits are the jobs that wait, in the order in which they were looked at.
	waits []*waiting
	out   Decisions
}

// fresh is the place of a job that was admitted in this cycle.
type fresh struct {
	form   *form
	placed []int32
}

// Schedule decides which pending jobs are admitted.
func Schedule(s Snapshot) Decisions {
	c := begin(&s)
	c.decideAll(s.Pending)
	c.confirm(&s)
	c.explain()
	return c.out
}

// decideAll decides on the pending jobs one after the other.
func (c *cycle) decideAll(pending []Job) {
	order, cannot := c.turns(pending)
	for !order.empty() {
		at := order.pop()
		job := at.job
		job.verdict = c.decide(job, at.borrows)
		if job.verdict != admitted {
			c.waits = append(c.waits, job)
		}
		at.line.pass(job.verdict == admitted)
		order.add(at.line)
	}
	c.waits = append(c.waits, cannot...)
}

func begin(s *Snapshot) *cycle {
	c := &cycle{now: s.Now, layout: layoutOf(s.Pending, s.Nodes), nodes: nodesOf(s.Nodes), queues: queuesOf(s.Queues),
		namespaces: s.Namespaces, requireQueue: s.RequireQueue}
	clusters := clustersOf(s.Clusters, c.nodes)
	c.forms = newForms(c.layout, c.nodes, clusters)
	c.free = newRoom(len(c.nodes.all), c.layout.width)
	for i, node := range c.nodes.all {
		row := c.free.of(int32(i))
		c.layout.add(row, &node.Allocatable, 1)
		c.total[gpuSum] += node.Allocatable.GPUs
		c.total[cpuSum] += node.Allocatable.MilliCPU
		c.total[memorySum] += node.Allocatable.Memory
		c.layout.add(row, &node.Requested, -1)
	}
	c.empty = c.free.clone()
	c.running = runningOf(s.Running, &c.layout, c.nodes)
	for i := range c.running.jobs {
		h := &c.running.jobs[i]
		c.running.move(h, c.free, -1)
		h.queue = c.queues[h.Queue]
		if h.queue != nil && h.Priority > h.queue.highest() { // raised since it was admitted
			capped := *h.Job
			capped.Priority = h.queue.highest()
			h.Job = &capped
		}
		h.scopes = scopesOf(h.Job, &h.need, h.queue, clusters[h.Cluster])
		c.hold(h.Job, &h.scopes, &h.need, h.queue, h.going)
	}
	c.usable, c.future = c.free.clone(), c.free.clone()
	for i := range c.running.jobs {
		if h := &c.running.jobs[i]; h.going {
			c.going++
			c.running.move(h, c.future, 1)
		}
	}
	c.scratch = make([]int64, c.layout.width)
	return c
}

// hold books what a job holds.
func (c *cycle) hold(job *Job, s *scopes, need *amounts, q *queue, going bool) {
	s.each(func(l *ledger, need *amounts) {
		l.used.add(need, 1)
		if going {
			l.soon.add(need, 1)
		}
	})
	if q == nil || !q.fairShare() {
		return
	}
	ledgerFor(q.members, tenant{job.Namespace, job.User}, nil).used.add(need, 1)
	if s[ofNamespace].ledger == nil {
		ledgerFor(q.namespaces, job.Namespace, nil).used.add(need, 1)
	}
}

// turns gives the pending jobs their order, and sorts out those that cannot be admitted whatever ends.
func (c *cycle) turns(pending []Job) (*turns, []*waiting) {
	lines := map[string][]*waiting{}
	var cannot []*waiting
	for i := range pending {
		w := newWaiting(&pending[i], c.now)
		w.queue, w.form = c.queues[w.Queue], c.forms.of(w.Job)
		if w.verdict = c.cannot(w); w.verdict != admitted {
			cannot = append(cannot, w)
		} else {
			lines[w.Queue] = append(lines[w.Queue], w)
		}
	}
	order := newTurns()
	for name, all := range lines {
		order.add(c.lineOf(c.queues[name], all))
	}
	slices.SortFunc(cannot, byRank)
	return order, cannot
}

// cannot says why a job cannot be admitted whatever ends; admitted when nothing speaks against it.
func (c *cycle) cannot(job *waiting) verdict {
	switch {
	case job.Queue == "" && c.requireQueue:
		return unqueued
	case job.Queue != "" && job.queue == nil:
		return noQueue
	case job.queue != nil && !job.queue.selects(job.Namespace, c.namespaces):
		return notSelected
	case job.queue != nil && job.Priority > job.queue.highest():
		return tooHigh
	case job.queue != nil && ptr.Deref(job.queue.Spec.Suspend, false):
		return suspended
	case job.Cluster != "" && job.form.cluster == nil:
		return noCluster
	}
	s := scopesOf(job.Job, &job.form.need, job.queue, job.form.cluster)
	var beyond bool // what the job exceeds by itself
	if job.at, job.sum, beyond = s.short(func(*ledger) amounts { return amounts{} }, nil); beyond {
		return tooMuchQuota
	}
	if !c.isHopeless(job.form) {
		return admitted
	}
	// Nodes may be added for a job that lacks nothing else.
	var short bool
	if job.at, job.sum, short = s.short((*ledger).now, nil); short {
		return overQuota
	}
	return tooMuchRoom
}

// decide on the next job.
func (c *cycle) decide(job *waiting, borrows bool) verdict {
	if q := job.queue; q != nil && q.clearing != nil && q.clearing.Namespace == job.Namespace {
		job.behind = q.clearing
		return afterOther
	}
	s := scopesOf(job.Job, &job.form.need, job.queue, job.form.cluster)
	at, sum, short := s.short((*ledger).now, nil)
	if !short {
		if placed, ok := c.place(job.form); ok {
			c.hold(job.Job, &s, &job.form.need, job.queue, false)
			c.fresh = append(c.fresh, fresh{job.form, placed})
			c.out.Admitted = append(c.out.Admitted, Admission{UID: job.UID, Generation: job.Generation, Nodes: c.names(job.form, placed), Cluster: job.Cluster})
			return admitted
		}
	}
	if job.queue == nil {
		return c.refuse(job, &s, at, sum, short)
	}
	// A job that comes after one that borrows has its turn with those that borrow.
	job.queue.waitsBorrowing = job.queue.waitsBorrowing || borrows
	verdict := c.refuse(job, &s, at, sum, short)
	job.queue.waits = true
	if verdict == freeing && job.queue.fairShare() && job.queue.clearing == nil {
		job.queue.clearing = job
	}
	return verdict
}

// refuse says why a job cannot start now, and sees to it that it can later.
func (c *cycle) refuse(job *waiting, s *scopes, at level, sum int, short bool) verdict {
	job.at, job.sum, job.otherwise = at, sum, noRoom
	if short {
		job.otherwise = overQuota
	}
	if c.awaitGoing(job, s) || c.preempt(job, s) {
		return freeing
	}
	if !short {
		c.reserve(job, s)
		c.noteBefore(job.form)
		return noRoom
	}
	if s[at].claimant == nil {
		s.claim(job, at)
		return overQuota
	}
	if s[at].short(&s[at].need, s[at].used) < 0 {
		job.behind = s[at].claimant
		return behind
	}
	return overQuota
}

// copyOf what will be free, in a buffer that is used again and again.
func (c *cycle) copyOf(buffer *room) room {
	if buffer.all == nil {
		*buffer = c.future.clone()
	} else {
		copy(buffer.all, c.future.all)
	}
	return *buffer
}

// names of the nodes of all members, in the job's own order.
func (c *cycle) names(f *form, placed []int32) []string {
	names := make([]string, len(placed))
	for _, p := range f.parts {
		for i, node := range placed[p.at : p.at+p.count] {
			names[p.from+i] = c.nodes.all[node].Name
		}
	}
	return names
}
