package scheduler

import (
	"cmp"
	"slices"
	"strings"
	"time"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
)

const (
	// ageing is the time of waiting that counts as much as one more of priority. Because all jobs age alike, two jobs keep
	// their order while they wait, and only so many later jobs can come before an earlier one.
	ageing = time.Minute
	// overdue jobs have waited so long that they come before all others, the oldest first: whatever is borrowed, shared or
	// of however high a priority.
	overdue = 24 * time.Hour
)

// waiting is a pending job in a cycle.
type waiting struct {
	*Job
	form  *form
	queue *queue
	// since when it waits, not later than now.
	since time.Time
	// rank is the priority with what it has aged, in milliseconds of waiting: the highest comes first.
	rank    int64
	overdue bool
	// verdict of the cycle, otherwise what it is unless jobs are stopped for it; at is the level that is short, and sum of what,
	// if that is why it waits; behind is the job for which what it needs is kept.
	verdict, otherwise verdict
	at                 level
	sum                int
	behind             *waiting
	// kept are the nodes on which room is kept for it, victims how many jobs have been stopped for it in this cycle.
	kept    []int32
	victims int
}

func newWaiting(job *Job, now time.Time) *waiting {
	w := &waiting{Job: job, since: job.QueuedAt}
	if job.AdmittedAt.After(w.since) {
		// It was evicted since, and waits again.
		w.since = job.AdmittedAt
	}
	if w.since.IsZero() || w.since.After(now) {
		w.since = now
	}
	w.rank = rankOf(job.Priority, now.Sub(w.since))
	w.overdue = now.Sub(w.since) >= overdue
	return w
}

func rankOf(priority int32, waited time.Duration) int64 {
	return int64(priority)*ageing.Milliseconds() + max(waited, 0).Milliseconds()
}

// heldRank is the rank that a running job had when it was admitted: what a job gained by waiting is not taken from it at once.
func heldRank(job *Job) int64 {
	if job.QueuedAt.IsZero() || job.AdmittedAt.IsZero() {
		return rankOf(job.Priority, 0)
	}
	return rankOf(job.Priority, job.AdmittedAt.Sub(job.QueuedAt))
}

// byAge orders jobs by how long they wait.
func byAge(a, b *waiting) int {
	return cmp.Or(a.since.Compare(b.since), strings.Compare(string(a.UID), string(b.UID)))
}

// byRank orders jobs by priority and age.
func byRank(a, b *waiting) int {
	if a.overdue != b.overdue {
		if a.overdue {
			return -1
		}
		return 1
	}
	if a.overdue {
		return byAge(a, b)
	}
	return cmp.Or(cmp.Compare(b.rank, a.rank), byAge(a, b))
}

// line is the order of a queue's jobs.
type line interface {
	// next is the next job to decide on, nil when there are no more; pass goes on to the one after it.
	next() *waiting
	pass(admitted bool)
}

// sorted is a line whose order does not change.
type sorted struct{ jobs []*waiting }

func (s *sorted) next() *waiting {
	if len(s.jobs) == 0 {
		return nil
	}
	return s.jobs[0]
}

func (s *sorted) pass(bool) { s.jobs = s.jobs[1:] }

// lineOf makes the line of jobs of a queue; of jobs without one by their rank.
func (c *cycle) lineOf(q *queue, all []*waiting) line {
	if q != nil && q.fairShare() {
		q.line = c.fairLine(q, all)
		return q.line
	}
	if q != nil && q.Spec.Algorithm == aiplatformv1alpha1.QueueFIFO {
		slices.SortFunc(all, byAge)
	} else {
		slices.SortFunc(all, byRank)
	}
	return &sorted{all}
}

// head is the first of a line.
type head struct {
	line line
	job  *waiting
	// borrows says that the job would take what other queues of the cohort leave.
	borrows bool
}

// turns gives all jobs in the order in which they are looked at: of the first of all lines those that are overdue, then those
// that their queue's own quota has room for, then those that borrow; among these by rank.
type turns struct{ heap[head] }

func newTurns() *turns {
	return &turns{heap[head]{less: func(a, b head) bool {
		if !a.job.overdue && !b.job.overdue && a.borrows != b.borrows {
			return b.borrows
		}
		return byRank(a.job, b.job) < 0
	}}}
}

func (t *turns) add(l line) {
	if job := l.next(); job != nil {
		t.push(head{line: l, job: job, borrows: job.queue != nil && job.queue.borrows(&job.form.need)})
	}
}
