package queueing

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dcnlab/spot-training-operator/internal/queueing/scheduler"
)

// minorInterval is how often a job is told that it waits as before, but at another place or with other numbers. With many
// that wait it is longer, so that no more than perJobTold apart of them are told.
const (
	minorInterval = 5 * time.Second
	perJobTold    = 10 * time.Millisecond
)

// outcome of a cycle.
type outcome struct {
	// tell are the jobs whose decision is another than before.
	tell []*job
	// stale says that a job changed while it was being decided upon: another cycle is needed.
	stale bool
	// admitted and preempted count decisions.
	admitted, preempted int
}

// seen are the versions of the jobs in a snapshot.
func (m *model) seen() map[types.UID]int {
	seen := make(map[types.UID]int, len(m.jobs))
	for uid, j := range m.jobs {
		seen[uid] = j.changes
	}
	return seen
}

// take the decisions on a snapshot of jobs in the versions seen. Those on jobs that have changed since are dropped.
func (m *model) take(decisions scheduler.Decisions, seen map[types.UID]int, now time.Time) outcome {
	var o outcome
	current := func(uid types.UID) *job {
		j := m.jobs[uid]
		if version, ok := seen[uid]; j == nil || !ok || j.changes != version {
			o.stale = true
			return nil
		}
		return j
	}
	for _, a := range decisions.Admitted {
		j := current(a.UID)
		if j == nil || j.holds() {
			continue
		}
		m.count(j, -1)
		j.admitted, j.admittedAt, j.wait, j.untold = &a, now, nil, false
		m.count(j, 1)
		o.admitted++
		o.tell = append(o.tell, j)
	}
	for _, p := range decisions.Preempted {
		j, winner := current(p.UID), m.jobs[p.For]
		if j == nil || winner == nil || j.state != Holding || j.Stopping || j.preempted != nil {
			continue
		}
		j.preempted = &PreemptedBy{winner.source.Kind, winner.Namespace, winner.Name, winner.Priority}
		o.preempted++
		o.tell = append(o.tell, j)
	}
	for _, w := range decisions.Waiting {
		if j := current(w.UID); j != nil && !j.holds() && j.setWait(w, now, m.waiting) {
			o.tell = append(o.tell, j)
		}
	}
	return o
}

// setWait notes why a job waits. It returns whether to tell now.
func (j *job) setWait(w scheduler.Wait, now time.Time, waiting int) bool {
	first := j.wait == nil || j.wait.Reason != w.Reason
	if !first && *j.wait != w {
		j.untold = true
	}
	j.wait = &w
	if !first && (!j.untold || now.Sub(j.told) < minorInterval+time.Duration(waiting)*perJobTold) {
		return false
	}
	j.told, j.untold = now, false
	return true
}

// decision on a job for its controller.
func (j *job) decision() Decision {
	if j.state == Holding {
		return Decision{Preempted: j.preempted}
	}
	if j.admitted != nil {
		return Decision{Admitted: j.admitted}
	}
	return Decision{Wait: j.wait}
}

// known says whether a cycle has looked at the job.
func (j *job) known() bool { return j.state == Holding || j.admitted != nil || j.wait != nil }
