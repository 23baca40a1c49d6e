package scheduler

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// fair is the line of a queue with fair shares: the namespace with the least in use comes first, in it the user with the least, of
// the user's jobs the one of the highest rank. Jobs that are overdue come before.
type fair struct {
	cycle      *cycle
	queue      *queue
	overdue    sorted
	namespaces heap[*share]
}

// share of a namespace, or of one of its users.
type share struct {
	// dominant is the largest share that it holds of any resource.
	dominant float64
	held     *ledger
	name     string
	// users of a namespace; jobs of a user.
	users heap[*share]
	jobs  sorted
}

func (s *share) first() *waiting {
	if s.users.empty() {
		return s.jobs.next()
	}
	return s.users.first().first()
}

func lessShare(a, b *share) bool {
	return cmp.Or(cmp.Compare(a.dominant, b.dominant), byRank(a.first(), b.first()), strings.Compare(a.name, b.name)) < 0
}

func (c *cycle) fairLine(q *queue, all []*waiting) *fair {
	f := &fair{cycle: c, queue: q, namespaces: heap[*share]{less: lessShare}}
	slices.SortFunc(all, func(a, b *waiting) int {
		if a.overdue || b.overdue {
			return byRank(a, b)
		}
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.User, b.User), byRank(a, b))
	})
	late := 0
	for late < len(all) && all[late].overdue {
		late++
	}
	f.overdue.jobs, all = all[:late], all[late:]
	for len(all) > 0 {
		namespace := &share{name: all[0].Namespace, users: heap[*share]{less: lessShare}, held: f.of(all[0].Namespace)}
		for len(all) > 0 && all[0].Namespace == namespace.name {
			count := 1
			for count < len(all) && all[count].Namespace == namespace.name && all[count].User == all[0].User {
				count++
			}
			user := &share{name: all[0].User, jobs: sorted{all[:count]}, held: f.ofUser(all[0].Job)}
			user.dominant = f.dominant(user.held)
			namespace.users.push(user)
			all = all[count:]
		}
		namespace.dominant = f.dominant(namespace.held)
		f.namespaces.push(namespace)
	}
	return f
}

func (f *fair) of(namespace string) *ledger {
	return ledgerFor(f.queue.namespaces, namespace, f.queue.Spec.NamespaceLimits)
}

func (f *fair) ofUser(job *Job) *ledger {
	return ledgerFor(f.queue.members, tenant{job.Namespace, job.User}, nil)
}

// dominant is the largest part held: of the queue's quota, or where it has none, of what the nodes have.
func (f *fair) dominant(held *ledger) float64 {
	largest := 0.0
	for i := gpuSum; i < sums; i++ {
		whole := f.queue.nominal[i]
		if whole == math.MaxInt64 || whole == 0 {
			whole = f.cycle.total[i]
		}
		if whole > 0 {
			largest = max(largest, float64(held.used[i])/float64(whole))
		}
	}
	return largest
}

func (f *fair) next() *waiting {
	if job := f.overdue.next(); job != nil {
		return job
	}
	if f.namespaces.empty() {
		return nil
	}
	return f.namespaces.first().first()
}

func (f *fair) pass(admitted bool) {
	if f.overdue.next() != nil {
		f.overdue.pass(admitted)
		if admitted {
			f.reckon()
		}
		return
	}
	namespace := f.namespaces.first()
	user := namespace.users.first()
	user.jobs.pass(admitted)
	if admitted {
		user.dominant, namespace.dominant = f.dominant(user.held), f.dominant(namespace.held)
	}
	if user.jobs.next() == nil {
		namespace.users.pop()
	} else {
		namespace.users.sink(0)
	}
	if namespace.users.empty() {
		f.namespaces.pop()
	} else {
		f.namespaces.sink(0)
	}
}

// reckon all shares again, after a job was admitted out of turn.
func (f *fair) reckon() {
	for _, namespace := range f.namespaces.items {
		for _, user := range namespace.users.items {
			user.dominant = f.dominant(user.held)
		}
		namespace.users.order()
		namespace.dominant = f.dominant(namespace.held)
	}
	f.namespaces.order()
}

// fairTo says whether a job still comes first in a queue that goes by shares once its victims are gone: no job is stopped
// for someone who would then hold more than the other.
func (c *cycle) fairTo(job *waiting, victims []*held) bool {
	q := job.queue
	if !q.fairShare() {
		return true
	}
	f := q.line
	lost := map[*ledger]*ledger{}
	lose := func(l *ledger, h *held) {
		if lost[l] == nil {
			lost[l] = &ledger{used: l.used}
		}
		lost[l].used.add(&h.need, -1)
	}
	for _, h := range victims {
		if h.queue == q {
			lose(f.of(h.Namespace), h)
			lose(f.ofUser(h.Job), h)
		}
	}
	shareOf := func(l *ledger) float64 {
		if lost[l] != nil {
			l = lost[l]
		}
		return f.dominant(l)
	}
	mine, myUsers := shareOf(f.of(job.Namespace)), shareOf(f.ofUser(job.Job))
	return !slices.ContainsFunc(victims, func(h *held) bool {
		switch {
		case h.queue != q || h.Namespace == job.Namespace && h.User == job.User:
			return false
		case h.Namespace != job.Namespace:
			held := shareOf(f.of(h.Namespace))
			return held < mine || held == mine && comesFirst(f.namespaces.items, h.Namespace, job)
		}
		held := shareOf(f.ofUser(h.Job))
		at := slices.IndexFunc(f.namespaces.items, func(s *share) bool { return s.name == h.Namespace })
		return held < myUsers || held == myUsers && at >= 0 && comesFirst(f.namespaces.items[at].users.items, h.User, job)
	})
}

// comesFirst says whether someone of equal share has a job that comes before another's.
func comesFirst(shares []*share, name string, job *waiting) bool {
	return slices.ContainsFunc(shares, func(s *share) bool { return s.name == name && byRank(s.first(), job) < 0 })
}
