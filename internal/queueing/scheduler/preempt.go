package scheduler

import (
	"slices"
	"strings"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
)

const (
	// preemptors is for how many jobs others are stopped in one cycle, tries how many are looked at closely for that. Those
	// that are left out have their turn in later cycles.
	preemptors = 16
	tries      = 64
)

// preempt stops the cheapest jobs of lower priority that make room for a job, if there are such, and keeps the room for it.
func (c *cycle) preempt(job *waiting, s *scopes) bool {
	q := job.queue
	if q == nil || q.Spec.PreemptionPolicy != aiplatformv1alpha1.PreemptLowerPriority || c.preempted == preemptors || c.tried == tries {
		return false
	}
	// In a queue that does not go by priority only the first may, or another would come before it to the place.
	if q.Spec.Algorithm != aiplatformv1alpha1.QueueByPriority && q.Spec.Algorithm != "" && q.waits {
		return false
	}
	if !c.mayHelp(job, s) {
		return false
	}
	c.tried++
	victims := c.choose(job, s)
	if len(victims) == 0 || !c.fairTo(job, victims) {
		return false
	}
	then := c.copyOf(&c.buffers[0])
	for _, h := range victims {
		c.running.move(h, then, 1)
	}
	placed, ok := c.find(job.form, then, nil)
	if !ok || c.othersFirst(victims, then) {
		return false
	}
	for _, h := range victims {
		h.going = true
		c.going++
		c.victims++
		c.running.move(h, c.future, 1)
		h.scopes.each(func(l *ledger, need *amounts) { l.soon.add(need, 1) })
		for _, l := range c.lower {
			if h.Priority < l.priority {
				c.running.move(h, l.room, -1)
				h.scopes.each(func(of *ledger, need *amounts) { of.below[l.at].add(need, -1) })
			}
		}
		c.out.Preempted = append(c.out.Preempted, Preemption{UID: h.UID, For: job.UID})
	}
	slices.SortFunc(c.out.Preempted[len(c.out.Preempted)-len(victims):], func(a, b Preemption) int {
		return strings.Compare(string(a.UID), string(b.UID))
	})
	c.preempted++
	c.keep(job, s, placed, nil)
	job.victims = len(victims)
	return true
}

// mayHelp says, without looking at single jobs, whether what all jobs of lower priority hold would do.
func (c *cycle) mayHelp(job *waiting, s *scopes) bool {
	if job.form.vain != nil && job.Priority <= *job.form.vain {
		return false
	}
	levels := c.upTo(job.Priority)
	below := levels[len(levels)-1]
	if below.none {
		return false
	}
	if !below.suffice(s) {
		return false
	}
	if job.form.mayFit(func(node int32) []int64 {
		copy(c.scratch, c.future.of(node))
		give(c.scratch, below.room.of(node), 1)
		return c.scratch
	}) {
		return true
	}
	job.form.vain = &job.Priority
	return false
}

// looked is how many of the forms that wait for room before a job are looked at when others are to be stopped for it.
const looked = 32

// othersFirst says whether a job that comes before would take the room that the victims free: they would be stopped for nothing.
func (c *cycle) othersFirst(victims []*held, then room) bool {
	for _, f := range c.before[:min(len(c.before), looked)] {
		if f.members > 1 || len(f.parts) == 0 {
			if c.roomFor(f, then) {
				return true
			}
			continue
		}
		p := &f.parts[0]
		for _, h := range victims {
			for _, node := range c.running.node[h.from:h.to] {
				if node >= 0 && p.shape.class.has[node] && fits(then.of(node), p.shape.request) {
					return true
				}
			}
		}
	}
	return false
}

// note that a job waits for room that jobs after it must not have cleared for themselves.
func (c *cycle) noteBefore(f *form) {
	if !f.before && len(c.before) < looked {
		f.before = true
		c.before = append(c.before, f)
	}
}
