package scheduler

import (
	"fmt"
	"maps"
	"slices"

	"github.com/dcnlab/spot-training-operator/api/reasons"
)

// explain says of all jobs that wait why they do, with the numbers at the end of the cycle.
func (c *cycle) explain() {
	byQueue := map[string][]*waiting{}
	for _, job := range c.waits {
		byQueue[job.Queue] = append(byQueue[job.Queue], job)
	}
	c.out.Waiting = make([]Wait, 0, len(c.waits))
	for _, name := range slices.Sorted(maps.Keys(byQueue)) {
		for i, job := range byQueue[name] {
			reason, message := c.reason(job)
			c.out.Waiting = append(c.out.Waiting, Wait{UID: job.UID, Position: i + 1, Reason: reason, Message: message})
		}
	}
}

// messageKey is what the message of jobs with equal needs depends on.
type messageKey struct {
	verdict verdict
	queue   *queue
	ledger  *ledger
	behind  *waiting
	at      level
	sum     int
}

func (c *cycle) reason(job *waiting) (string, string) {
	switch job.verdict {
	case noQueue:
		return reasons.QueueNotFound, fmt.Sprintf("waits for the AIJobQueue %s, which does not exist: create it, or name another queue", job.Queue)
	case noCluster:
		return reasons.ClusterNotFound, fmt.Sprintf("waits for the ComputeCluster %s, which does not exist: create it, or name another cluster", job.Cluster)
	case suspended:
		return reasons.QueueSuspended, fmt.Sprintf("waits for the AIJobQueue %s, which admits no job while its spec.suspend is true", job.Queue)
	case freeing:
		return reasons.WaitingForPreemption, c.whoGoes(job)
	case afterOther:
		return reasons.WaitingBehindGang, fmt.Sprintf("comes after %s of its namespace, for which jobs are being stopped", job.behind.title())
	case noRoom, tooMuchRoom:
		return c.roomReason(job)
	case behind:
		return reasons.WaitingBehindGang, job.remember(messageKey{verdict: behind, queue: job.queue, behind: job.behind, at: job.at, sum: job.sum}, func() string {
			return fmt.Sprintf("needs %s, which is kept for %s that comes first", amountOf(job.sum, job.form.need[job.sum]), job.behind.title())
		})
	}
	s := scopesOf(job.Job, &job.form.need, job.queue, job.form.cluster)
	key := messageKey{verdict: job.verdict, queue: job.queue, ledger: s[job.at].ledger, at: job.at, sum: job.sum}
	return reasons.QuotaReached, job.remember(key, func() string { return job.quotaMessage(&s) })
}

// remember makes a message once for all jobs that share it.
func (w *waiting) remember(key messageKey, tell func() string) string {
	if known, ok := w.form.messages[key]; ok {
		return known
	}
	if w.form.messages == nil {
		w.form.messages = map[messageKey]string{}
	}
	message := tell()
	w.form.messages[key] = message
	return message
}

func (w *waiting) title() string { return fmt.Sprintf("%s %s/%s", w.Kind, w.Namespace, w.Name) }

// whoGoes says for how many jobs one waits that are being stopped.
func (c *cycle) whoGoes(job *waiting) string {
	if job.victims > 0 {
		return fmt.Sprintf("waits for %s of lower priority to stop and give %s back", plural(job.victims, "job"), theirPlace(job.victims))
	}
	on := make([]bool, len(c.nodes.all))
	for _, node := range job.kept {
		on[node] = true
	}
	going := 0
	for i := range c.running.jobs {
		h := &c.running.jobs[i]
		if h.going && slices.ContainsFunc(c.running.node[h.from:h.to], func(node int32) bool { return node >= 0 && on[node] }) {
			going++
		}
	}
	if going == 0 {
		return "waits for jobs that are being stopped to give their quota back"
	}
	return fmt.Sprintf("waits for %s that %s being stopped to give %s back", plural(going, "job"), areOrIs(going), theirPlace(going))
}

// quotaMessage says which limit a job waits for.
func (w *waiting) quotaMessage(s *scopes) string {
	l, need := s[w.at].ledger, s[w.at].need[w.sum]
	owner := w.owner()
	limit, used := l.limit[w.sum], l.used[w.sum]
	if w.verdict == tooMuchQuota {
		return fmt.Sprintf("needs %s, but %s may never hold more than %s: raise that limit, or ask for less",
			amountOf(w.sum, need), owner, amountOf(w.sum, limit))
	}
	if w.sum == jobs {
		return fmt.Sprintf("%s runs %s, as many as it may", owner, plural(int(used), "job"))
	}
	if w.at == ofQueue && w.queue.cohort != nil && w.queue.nominal[w.sum] != limit {
		return fmt.Sprintf("needs %s: %s holds %s of its %s and the %s that it may borrow", amountOf(w.sum, need), owner,
			bare(w.sum, used), bare(w.sum, w.queue.nominal[w.sum]), bare(w.sum, limit-w.queue.nominal[w.sum]))
	}
	return fmt.Sprintf("needs %s: %s holds %s of the %s that it may", amountOf(w.sum, need), owner, bare(w.sum, used), bare(w.sum, limit))
}

// owner of the limit that a job waits for.
func (w *waiting) owner() string {
	switch w.at {
	case ofUser:
		return fmt.Sprintf("user %s in AIJobQueue %s", w.User, w.Queue)
	case ofNamespace:
		return fmt.Sprintf("namespace %s in AIJobQueue %s", w.Namespace, w.Queue)
	case ofCluster:
		return "ComputeCluster " + w.Cluster
	case ofCohort:
		return "cohort " + w.queue.Cohort
	}
	return "AIJobQueue " + w.Queue
}
