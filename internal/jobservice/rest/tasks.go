package rest

import (
	"context"
	"errors"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/auth"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

const (
	maxTaskBytes = 1 << 20
	maxResult    = 256 << 10
	maxFailure   = 8 << 10
	maxWorkerID  = 253
	maxTasks     = 100
	maxWait      = 30
	defaultWait  = 20
)

func (s *service) leaseTasks(c *call) ([]byte, error) {
	request, err := c.readLease()
	if err != nil {
		return nil, err
	}
	if err := s.mayWork(c, request.Queue); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(c.Context())
	defer cancel()
	// A server that shuts down does not let its workers wait to the end.
	defer context.AfterFunc(s.Context, cancel)()
	leases, err := s.Store.Lease(ctx, request)
	if err != nil && (!errors.Is(err, context.Canceled) || s.Context.Err() == nil) {
		return nil, err
	}
	for i := range leases {
		s.leases.Add(leases[i].Job.ID, request.Queue)
	}
	return list(begin(make([]byte, 0, 64+512*len(leases))), "tasks", leases, appendLease).end(), nil
}

func (c *call) readLease() (jobs.LeaseRequest, error) {
	request := jobs.LeaseRequest{Executor: jobs.Pool, Limit: 1}
	seconds := defaultWait
	err := c.read(maxTaskBytes, "the request is wrong",
		required("queue", "set it to the queue whose tasks the worker takes", asText(&request.Queue, label)),
		required("worker_id", "set it to a name of the worker that no other has", asText(&request.Worker, workerID)),
		optional("job_types", func(value []byte) []detail {
			return readList(value, "types of jobs", func(_ int, value []byte) []detail {
				var kind string
				details := asText(&kind, oneOf(jobTypes))(value)
				if details == nil && !slices.Contains(request.Types, kind) {
					request.Types = append(request.Types, kind)
				}
				return details
			})
		}),
		optional("max_tasks", asInteger(1, maxTasks, &request.Limit)),
		optional("wait_seconds", asInteger(0, maxWait, &seconds)),
	)
	request.Wait = time.Duration(seconds) * time.Second
	return request, err
}

func workerID(text string) []detail {
	if text != "" && len(text) <= maxWorkerID && isVisible(text) {
		return nil
	}
	return wrong("must be 1 to %d visible characters of ASCII without blanks: use the name of the host", maxWorkerID)
}

// mayWork checks that the client may take tasks of a queue, in all namespaces.
func (s *service) mayWork(c *call, queue string) error {
	return s.access.Check(c.Context(), c.identity, auth.Attributes{Verb: "work", Resource: auth.Queues, Name: queue})
}

// leased reads the task of the path, and the lease token and the other fields of the body.
func (c *call) leased(fields ...field) (id string, fence int64, err error) {
	var token int
	leaseToken := required("lease_token", "set it to the lease_token that came with the task", asInteger(1, math.MaxInt, &token))
	if err := c.read(maxTaskBytes, "the request is wrong", append([]field{leaseToken}, fields...)...); err != nil {
		return "", 0, err
	}
	id, ok := jobID(c.PathValue("id"))
	if !ok {
		return "", 0, jobs.ErrNotFound
	}
	return id, int64(token), c.mayWorkOn(id)
}

// mayWorkOn a task who may work on its queue. The lease token alone proves too little: it is a small number. Tasks that were leased
// here a short time ago are known; others, as after a restart, are looked up.
func (c *call) mayWorkOn(id string) error {
	s := c.service
	queue, known := s.leases.Get(id)
	if !known {
		job, err := s.Store.Get(c.Context(), id)
		if err != nil {
			return err
		}
		if job.Executor != jobs.Pool {
			return jobs.ErrNotFound // it runs in pods, but who asks need not be one who may know that
		}
		queue = job.Queue
		s.leases.Add(id, queue)
	}
	return hidden(s.mayWork(c, queue.(string)))
}

func (s *service) heartbeat(c *call) ([]byte, error) {
	id, fence, err := c.leased()
	if err != nil {
		return nil, err
	}
	expires, cancel, err := s.Store.Heartbeat(c.Context(), id, fence)
	return begin(nil).time("lease_expires_at", expires).boolean("cancel", cancel).end(), err
}

func (s *service) completeTask(c *call) ([]byte, error) {
	result := noConfig
	id, fence, err := c.leased(optional("result", asKept(maxResult, &result)))
	if err != nil {
		return nil, err
	}
	job, err := s.Store.Complete(c.Context(), id, fence, result)
	return c.taskEnded("tasks.complete", &job, err)
}

func (s *service) failTask(c *call) ([]byte, error) {
	failure := jobs.Failure{Message: "the worker gave no message", Retryable: true}
	id, fence, err := c.leased(
		optional("message", asText(&failure.Message, nil)), optional("retryable", asBoolean(&failure.Retryable)),
	)
	if err != nil {
		return nil, err
	}
	failure.Message = lastPart(failure.Message)
	job, err := s.Store.Fail(c.Context(), id, fence, failure)
	return c.taskEnded("tasks.fail", &job, err)
}

func (c *call) taskEnded(action string, job *jobs.Job, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	c.gather(action, http.StatusOK, job)
	return begin(nil).text("id", job.ID).text("status", string(job.Status)).end(), nil
}

// lastPart of a message, where the cause stands, as far as it can be kept. A worker that failed is not sent away for how it says so.
func lastPart(message string) string {
	message = strings.ToValidUTF8(strings.ReplaceAll(message, "\x00", "\uFFFD"), "\uFFFD")
	if len(message) > maxFailure {
		message = "…" + strings.ToValidUTF8(message[len(message)-maxFailure:], "")
	}
	return message
}
