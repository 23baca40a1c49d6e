package rest

import (
	"context"
	"fmt"
	"net/http"
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

// submissions gathers the entries on submitted jobs. Every job has its submitter and time itself, so that an entry on it may be
// late, and entries on very many need not be one for each: those that come while an entry of the same user on the same
// namespace is being written become one, with the first and the last ID.
type submissions struct {
	mu sync.Mutex
	// pending entries of those for whom one is being written; nil: there is none yet.
	pending map[submitter]*submitted
	writers sync.WaitGroup
}

type submitter struct{ user, namespace string }

type submitted struct {
	entry jobs.AuditEntry
	last  string
	count int
}

// submitted keeps that a job was accepted.
func (c *call) submitted(job *jobs.Job) {
	s := &c.service.submissions
	who := submitter{job.Submitter, job.Namespace}
	s.mu.Lock()
	defer s.mu.Unlock()
	gathered, writing := s.pending[who]
	if gathered == nil {
		gathered = &submitted{entry: jobs.AuditEntry{
			Time: c.start, User: job.Submitter, Action: "jobs.create", Namespace: job.Namespace, JobID: job.ID, RequestID: c.id,
			Status: http.StatusCreated,
		}}
		s.pending[who] = gathered
	}
	gathered.count++
	gathered.last = job.ID
	if !writing {
		s.writers.Go(func() { c.service.writeSubmissions(who) })
	}
}

// writeSubmissions writes what was gathered until there is no more.
func (s *service) writeSubmissions(who submitter) {
	for {
		s.submissions.mu.Lock()
		gathered := s.submissions.pending[who]
		s.submissions.pending[who] = nil
		if gathered == nil {
			delete(s.submissions.pending, who)
		}
		s.submissions.mu.Unlock()
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
