package scheduler

import (
	"math"

	"k8s.io/apimachinery/pkg/labels"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
)

// The sums that are limited.
const (
	jobs = iota
	gpuSum
	cpuSum
	memorySum
	sums
)

// amounts are sums of requests and a number of jobs.
type amounts [sums]int64

var unlimited = amounts{math.MaxInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64}

func needOf(job *Job) amounts {
	need := amounts{jobs: 1}
	for i := range job.Groups {
		group := &job.Groups[i]
		members := int64(max(group.Count, 0))
		need[gpuSum] += members * group.Requests.GPUs
		need[cpuSum] += members * group.Requests.MilliCPU
		need[memorySum] += members * group.Requests.Memory
	}
	return need
}

// add other amounts, or take them away, with sign -1.
func (a *amounts) add(other *amounts, sign int64) {
	for i := range a {
		a[i] += sign * other[i]
	}
}

// ledger keeps what jobs hold of something limited.
type ledger struct {
	limit amounts
	// used by running jobs and those admitted in the cycle; soon is what of it jobs hold that are being stopped.
	used, soon amounts
	// claimed by jobs that wait, so that later ones leave it to them; claimant is the first of them.
	claimed  amounts
	claimant *waiting
	// below is what preemptible jobs hold of it below some priorities, once it has been summed up.
	below  [levelsBelow + 1]amounts
	summed bool
}

// short is the sum that is not enough for a need, -1 for none.
func (l *ledger) short(need *amounts, used amounts) int {
	for i := range need {
		if need[i] > 0 && l.limit[i] != math.MaxInt64 && used[i] > l.limit[i]-need[i] {
			return i
		}
	}
	return -1
}

// now is what counts as used for a job that would start at once; soonest for one that waits for those that are being stopped.
func (l *ledger) now() amounts {
	used := l.used
	used.add(&l.claimed, 1)
	return used
}

func (l *ledger) soonest() amounts {
	used := l.now()
	used.add(&l.soon, -1)
	return used
}

// queue is an AIJobQueue in a cycle.
type queue struct {
	*aiplatformv1alpha1.AIJobQueue
	ledger
	// namespaces that it admits jobs of; nil for all.
	selector labels.Selector
	// nominal is the queue's own quota, without what it may borrow.
	nominal amounts
	// cohort is what the queues hold that lend one another; nil for a queue without.
	cohort            *ledger
	users, namespaces map[string]*ledger
	// waits says that a job of the queue waits, waitsBorrowing that one does that borrows.
	waits, waitsBorrowing bool
	// clearing is the job of a queue with fair shares for which jobs are being stopped.
	clearing *waiting
	// members are what the users of each namespace hold in a queue with fair shares, line the order of its jobs.
	members map[tenant]*ledger
	line    *fair
}

type tenant struct{ namespace, user string }

func queuesOf(all []*aiplatformv1alpha1.AIJobQueue) map[string]*queue {
	known := make(map[string]*queue, len(all))
	cohorts := map[string]*ledger{}
	for _, of := range all {
		q := &queue{AIJobQueue: of, users: map[string]*ledger{}, namespaces: map[string]*ledger{}, members: map[tenant]*ledger{}}
		q.selector = selectorOf(of)
		q.nominal = limitsOf(of.Spec.Quotas)
		q.limit = q.nominal
		if of.Spec.Cohort != "" {
			q.join(cohorts)
		}
		if of.Spec.MaxConcurrency > 0 {
			q.limit[jobs] = int64(of.Spec.MaxConcurrency)
		}
		known[of.Name] = q
	}
	return known
}

// join makes the queue a member of its cohort. A sum without a quota is neither lent nor borrowed.
func (q *queue) join(cohorts map[string]*ledger) {
	q.cohort = cohorts[q.Spec.Cohort]
	if q.cohort == nil {
		q.cohort = &ledger{limit: amounts{jobs: math.MaxInt64}}
		cohorts[q.Spec.Cohort] = q.cohort
	}
	borrowing := limitsOf(q.Spec.BorrowingLimits)
	for i := gpuSum; i < sums; i++ {
		if q.nominal[i] == math.MaxInt64 {
			continue
		}
		q.cohort.limit[i] += q.nominal[i]
		if borrowing[i] == math.MaxInt64 {
			q.limit[i] = math.MaxInt64
		} else {
			q.limit[i] += borrowing[i]
		}
	}
}

func limitsOf(limits *aiplatformv1alpha1.ResourceLimits) amounts {
	limit := unlimited
	if limits == nil {
		return limit
	}
	limit.set(gpuSum, limits.GPUs)
	if limits.CPU != nil {
		limit[cpuSum] = limits.CPU.MilliValue()
	}
	if limits.Memory != nil {
		limit[memorySum] = limits.Memory.Value()
	}
	return limit
}

// set a sum to a number of the API, which is nil for no limit.
func (a *amounts) set(sum int, number *int32) {
	if number != nil {
		a[sum] = int64(*number)
	}
}

func ledgerFor[K comparable](known map[K]*ledger, key K, limits *aiplatformv1alpha1.TenantLimits) *ledger {
	l := known[key]
	if l == nil {
		l = &ledger{limit: unlimited}
		if limits != nil {
			l.limit = limitsOf(&limits.ResourceLimits)
			l.limit.set(jobs, limits.MaxConcurrency)
		}
		known[key] = l
	}
	return l
}

func (q *queue) fairShare() bool { return q.Spec.Algorithm == aiplatformv1alpha1.QueueFairShare }

// lent is what of a need counts in the cohort.
func (q *queue) lent(need *amounts) amounts {
	counted := amounts{}
	for i := gpuSum; i < sums; i++ {
		if q.nominal[i] != math.MaxInt64 {
			counted[i] = need[i]
		}
	}
	return counted
}

// borrows says whether the queue would hold, with a need, more than its own quota of what is needed.
func (q *queue) borrows(need *amounts) bool {
	if q.cohort == nil {
		return false
	}
	for i := gpuSum; i < sums; i++ {
		if need[i] > 0 && q.nominal[i] != math.MaxInt64 && q.used[i] > q.nominal[i]-need[i] {
			return true
		}
	}
	return false
}

// hasBorrowed says whether the queue holds more than its own quota.
func (q *queue) hasBorrowed() bool {
	for i := gpuSum; i < sums; i++ {
		if q.used[i]-q.soon[i] > q.nominal[i] {
			return true
		}
	}
	return false
}

// level is something that limits a job, from the narrowest to the widest.
type level int

const (
	ofUser level = iota
	ofNamespace
	ofCluster
	ofQueue
	ofCohort
	levels
)

// scope is what a job needs of something limited.
type scope struct {
	*ledger
	need amounts
}

// scopes that limit a job; those without a ledger do not.
type scopes [levels]scope

func scopesOf(job *Job, need *amounts, q *queue, in *cluster) scopes {
	var s scopes
	if in != nil {
		s[ofCluster] = scope{&in.ledger, *need}
	}
	if q == nil {
		return s
	}
	s[ofQueue] = scope{&q.ledger, *need}
	if q.cohort != nil {
		s[ofCohort] = scope{q.cohort, q.lent(need)}
	}
	if limits := q.Spec.UserLimits; limits != nil {
		s[ofUser] = scope{ledgerFor(q.users, job.User, limits), *need}
	}
	if limits := q.Spec.NamespaceLimits; limits != nil {
		s[ofNamespace] = scope{ledgerFor(q.namespaces, job.Namespace, limits), *need}
	}
	return s
}

// short is the narrowest level that has not enough, once so much of each is freed (nil for nothing), and the sum; false when all have.
func (s *scopes) short(used func(*ledger) amounts, free *freed) (level, int, bool) {
	for at := range s {
		if s[at].ledger == nil {
			continue
		}
		holds := used(s[at].ledger)
		if free != nil {
			holds.add(&free[at], -1)
		}
		if sum := s[at].short(&s[at].need, holds); sum >= 0 {
			return level(at), sum, true
		}
	}
	return 0, 0, false
}

// each calls a function with all ledgers of a job and what it needs of them.
func (s *scopes) each(do func(*ledger, *amounts)) {
	for at := range s {
		if s[at].ledger != nil {
			do(s[at].ledger, &s[at].need)
		}
	}
}
