package rest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

// audit records what a user did or was not allowed to do. When that fails the request still succeeds, because the client would
// repeat it otherwise; the entry is in the service's log then.
func (c *call) audit(action, namespace, jobID string, status int, message string) {
	// That the client goes away does not undo what it did.
	c.service.keep(context.WithoutCancel(c.Context()), jobs.AuditEntry{
		Time: c.start, User: c.identity.User.Username, Action: action, Namespace: namespace, JobID: jobID,
		RequestID: c.id, Status: status, Message: message,
	})
}

func (s *service) keep(ctx context.Context, entry jobs.AuditEntry) {
	if err := s.Store.Audit(ctx, entry); err != nil {
		s.Log.Error(err, "Cannot write audit entry", "user", entry.User, "action", entry.Action, "namespace", entry.Namespace,
			"job", entry.JobID, "requestID", entry.RequestID, "status", entry.Status, "message", entry.Message)
	}
}

// auditTimeout of an entry that is written in the background.
const auditTimeout = 30 * time.Second

// gathering has the entries on submitted jobs and ended tasks. Every job has its submitter, worker and times itself, so that an entry on it
// may be late, and entries on very many need not be one for each: those that come while an entry on the same action of the same user
// in the same namespace is being written become one, with the first and the last ID.
type gathering struct {
	mu sync.Mutex
	// pending entries of those for whom one is being written; nil: there is none yet.
	pending map[auditKey]*gathered
	writers sync.WaitGroup
}

type auditKey struct{ user, action, namespace string }

type gathered struct {
	entry jobs.AuditEntry
	last  string
	count int
}

// gather an entry on what the user did to a job.
func (c *call) gather(action string, status int, job *jobs.Job) {
	g := &c.service.gathering
	key := auditKey{c.user(), action, job.Namespace}
	g.mu.Lock()
	defer g.mu.Unlock()
	entries, writing := g.pending[key]
	if entries == nil {
		entries = &gathered{entry: jobs.AuditEntry{
			Time: c.start, User: key.user, Action: action, Namespace: key.namespace, JobID: job.ID, RequestID: c.id, Status: status,
		}}
		g.pending[key] = entries
	}
	entries.count++
	entries.last = job.ID
	if !writing {
		g.writers.Go(func() { c.service.writeGathered(key) })
	}
}

// writeGathered writes what was gathered until there is no more.
func (s *service) writeGathered(key auditKey) {
	for {
		s.gathering.mu.Lock()
		gathered := s.gathering.pending[key]
		s.gathering.pending[key] = nil
		if gathered == nil {
			delete(s.gathering.pending, key)
		}
		s.gathering.mu.Unlock()
		if gathered == nil {
			return
		}
		if gathered.count > 1 {
			gathered.entry.Message = fmt.Sprintf("%d jobs, the last is %s", gathered.count, gathered.last)
		}
		ctx, cancel := context.WithTimeout(context.Background(), auditTimeout)
		s.keep(ctx, gathered.entry)
		cancel()
	}
}
