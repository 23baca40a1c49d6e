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
	case unqueued:
		return reasons.QueueRequired, "spec.queueName: is not set, and the operator admits no job without a queue: name an AIJobQueue"
	case notSelected:
		return reasons.NamespaceNotSelected, fmt.Sprintf("AIJobQueue %s admits no job of namespace %s: name another queue, "+
			"or have an administrator change spec.namespaceSelector of the queue or the labels of the namespace", job.Queue, job.Namespace)
	case tooHigh:
		return reasons.PriorityTooHigh, fmt.Sprintf("priority %d is above spec.maxPriority %d of AIJobQueue %s: lower the priority of the job, "+
			"or name another queue", job.Priority, job.queue.highest(), job.Queue)
	case noQueue:
		return reasons.QueueNotFound, fmt.Sprintf("AIJobQueue %s does not exist: create it, or name another queue", job.Queue)
	case noCluster:
		return reasons.ClusterNotFound, fmt.Sprintf("ComputeCluster %s does not exist: create it, or name another cluster", job.Cluster)
	case suspended:
		return reasons.QueueSuspended, fmt.Sprintf("AIJobQueue %s admits no job while its spec.suspend is true", job.Queue)
	case freeing:
		return reasons.WaitingForPreemption, c.preemptionMessage(job)
	case afterOther:
		return reasons.WaitingBehindGang, fmt.Sprintf("behind %s of the same namespace, for which jobs are being preempted", job.behind.title())
	case noRoom, tooMuchRoom:
		return c.roomReason(job)
	case behind:
		return reasons.WaitingBehindGang, job.remember(messageKey{verdict: behind, queue: job.queue, behind: job.behind, at: job.at, sum: job.sum}, func() string {
			return fmt.Sprintf("behind %s: required capacity (%s) is reserved for an earlier job",
				job.behind.title(), amountOf(job.sum, job.form.need[job.sum]))
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

// preemptionMessage says which jobs must stop before one can start.
func (c *cycle) preemptionMessage(job *waiting) string {
	if job.victims > 0 {
		return fmt.Sprintf("waiting for %s to be preempted", plural(job.victims, "lower-priority job"))
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
		return "waiting for stopping jobs to release their quota"
	}
	return fmt.Sprintf("waiting for %s to stop", plural(going, "job"))
}

// quotaMessage says which limit a job waits for.
func (w *waiting) quotaMessage(s *scopes) string {
	l, need := s[w.at].ledger, s[w.at].need[w.sum]
	owner, limit, used := w.owner(), l.limit[w.sum], l.used[w.sum]
	switch {
	case w.verdict == tooMuchQuota:
		return fmt.Sprintf("%s: requested %s exceeds the limit %s: raise the limit, or request less", owner, amountOf(w.sum, need), bareSum(w.sum, limit))
	case w.sum == jobs && w.at == ofCluster:
		return fmt.Sprintf("%s: maxJobs reached (%d)", owner, used)
	case w.sum == jobs:
		return fmt.Sprintf("%s: maxConcurrency reached (%d)", owner, used)
	}
	message := fmt.Sprintf("%s: quota exceeded: requested %s, used %s, limit %s", owner, amountOf(w.sum, need), bareSum(w.sum, used), bareSum(w.sum, limit))
	if w.at == ofQueue && w.queue.cohort != nil && w.queue.nominal[w.sum] != limit {
		message += fmt.Sprintf(" (quota %s, borrowing limit %s)", bareSum(w.sum, w.queue.nominal[w.sum]), bareSum(w.sum, limit-w.queue.nominal[w.sum]))
	}
	return message
}

// owner of the limit that a job waits for.
func (w *waiting) owner() string {
	switch w.at {
	case ofUser:
		if w.User == "" {
			return "unknown user in AIJobQueue " + w.Queue
		}
		return fmt.Sprintf("user %s in AIJobQueue %s", w.User, w.Queue)
	case ofNamespace:
		return fmt.Sprintf("namespace %s in AIJobQueue %s", w.Namespace, w.Queue)
	case ofCluster:
		return "ComputeCluster " + w.Cluster
	case ofCohort:
		return "cohort " + w.queue.Spec.Cohort
	}
	return "AIJobQueue " + w.Queue
}
