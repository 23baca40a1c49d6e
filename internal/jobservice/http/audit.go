package http

import (
	"context"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

// audit keeps what somebody did, or was not allowed to do. What was done stays done when that fails, because the client
// would do it a second time otherwise; the log of the service has it then.
func (c *call) audit(action, namespace, jobID string, status int, message string) {
	entry := jobs.AuditEntry{
		Time: c.start, User: c.identity.User.Name, Action: action, Namespace: namespace, JobID: jobID,
		RequestID: c.id, Status: status, Message: message,
	}
	// That the client goes away does not undo what it did.
	if err := c.service.Store.Audit(context.WithoutCancel(c.Context()), entry); err != nil {
		c.service.Log.Error(err, "an audit entry could not be kept", "user", entry.User, "action", action, "namespace", namespace,
			"job", jobID, "requestID", c.id, "status", status)
	}
}
