package scheduler

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// confirm drops the preemptions after which a job would have its place back before the one it was stopped for gets one. Who comes
// first for free room can change as jobs go: shares change, and of the jobs that wait for the same nodes another becomes the one
// for which room is kept. So the next cycle is worked out, in which all are gone that are to go.
func (c *cycle) confirm(s *Snapshot) {
	for len(c.out.Preempted) > 0 {
		starts, vain := c.following(s), map[types.UID]bool{}
		for _, p := range c.out.Preempted {
			if starts[p.UID] && !starts[p.For] {
				vain[p.For] = true
			}
		}
		if len(vain) == 0 {
			return
		}
		c.drop(vain)
	}
}

// following are the jobs that the next cycle admits once all jobs are gone that are being stopped.
func (c *cycle) following(s *Snapshot) map[types.UID]bool {
	stopped, placed := map[types.UID]bool{}, map[types.UID]*Admission{}
	for _, p := range c.out.Preempted {
		stopped[p.UID] = true
	}
	for i := range c.out.Admitted {
		placed[c.out.Admitted[i].UID] = &c.out.Admitted[i]
	}
	next := *s
	next.Running = make([]Job, 0, len(s.Running)+len(placed))
	next.Pending = make([]Job, 0, len(s.Pending))
	for _, j := range s.Running {
		switch {
		case stopped[j.UID]:
			j.QueuedAt, j.Placement = s.Now, nil
			next.Pending = append(next.Pending, j)
		case !j.Stopping:
			next.Running = append(next.Running, j)
		}
	}
	for _, j := range s.Pending {
		if a := placed[j.UID]; a != nil {
			j.AdmittedAt, j.Placement = s.Now, a.Nodes
			next.Running = append(next.Running, j)
		} else {
			next.Pending = append(next.Pending, j)
		}
	}
	then := begin(&next)
	then.decideAll(next.Pending)
	starts := make(map[types.UID]bool, len(then.out.Admitted))
	for i := range then.out.Admitted {
		starts[then.out.Admitted[i].UID] = true
	}
	return starts
}

// drop the preemptions for some jobs, which wait as before.
func (c *cycle) drop(preemptors map[types.UID]bool) {
	c.out.Preempted = slices.DeleteFunc(c.out.Preempted, func(p Preemption) bool { return preemptors[p.For] })
	for _, w := range c.waits {
		if preemptors[w.UID] {
			w.verdict, w.victims = w.otherwise, 0
		}
	}
}
