package rest

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"
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

func (s *service) leaseTasks(c *call) error {
	request, err := c.readLease()
	if err != nil {
		return err
	}
	if err := s.mayWork(c, request.Queue); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(c.Context())
	defer cancel()
	// A server that shuts down does not let its workers wait to the end.
	defer context.AfterFunc(s.Context, cancel)()
	leases, err := s.Store.Lease(ctx, request)
	if err != nil && (!errors.Is(err, context.Canceled) || s.Context.Err() == nil) {
		return err
	}
	out := append(make([]byte, 0, 64+512*len(leases)), `{"tasks":[`...)
	for i := range leases {
		s.leases.put(leases[i].Job.ID, request.Queue)
		if i > 0 {
			out = append(out, ',')
		}
		out = appendLease(out, &leases[i])
	}
	c.answer(http.StatusOK, append(out, "]}\n"...))
	return nil
}

func (c *call) readLease() (jobs.LeaseRequest, error) {
	request := jobs.LeaseRequest{Executor: jobs.Pool, Limit: 1, Wait: defaultWait * time.Second}
	r := report{}
	var number int64
	var hasQueue, hasWorker bool
	body, err := c.task()
	if err != nil {
		return request, err
	}
	r.object("", body, []string{"queue", "worker_id", "job_types", "max_tasks", "wait_seconds"}, func(name string, value []byte) {
		switch name {
		case "queue":
			hasQueue = true
			r.label(name, value, &request.Queue)
		case "worker_id":
			hasWorker = true
			if r.text(name, value, &request.Worker) && (request.Worker == "" || len(request.Worker) > maxWorkerID || !isVisible(request.Worker)) {
				r.add(name, "must be 1 to %d visible characters of ASCII without blanks: use the name of the host", maxWorkerID)
			}
		case "job_types":
			if value[0] != '[' {
				r.wrongKind(name, value, "a list of types of jobs")
				return
			}
			elements(value, func(i int, value []byte) {
				field := "job_types[" + strconv.Itoa(i) + "]"
				if kind := r.oneOf(field, value, jobTypes); kind != "" && len(request.Types) < len(jobTypes) {
					request.Types = append(request.Types, kind)
				}
			})
		case "max_tasks":
			if r.integer(name, value, 1, maxTasks, &number) {
				request.Limit = int(number)
			}
		case "wait_seconds":
			if r.integer(name, value, 0, maxWait, &number) {
				request.Wait = time.Duration(number) * time.Second
			}
		}
	})
	if !hasQueue {
		r.add("queue", "is missing: set it to the queue whose tasks the worker takes")
	}
	if !hasWorker {
		r.add("worker_id", "is missing: set it to a name of the worker that no other has")
	}
	return request, r.problem("the request is wrong")
}

// task reads the body of a worker's request, an object.
func (c *call) task() ([]byte, error) {
	body, err := c.body(maxTaskBytes, nil)
	if err != nil {
		return nil, err
	}
	if p := readObject(body); p != nil {
		return nil, p
	}
	return body, nil
}

// mayWork checks that the client may take tasks of a queue, in all namespaces.
func (s *service) mayWork(c *call, queue string) error {
	return s.access.Check(c.Context(), c.identity, auth.Attributes{Verb: "work", Resource: auth.Queues, Name: queue})
}

// leased reads the task of the path and the lease token of the body. The other fields are for the function.
func (c *call) leased(names []string, member func(r *report, name string, value []byte)) (id string, fence int64, err error) {
	id, ok := jobID(c.PathValue("id"))
	body, err := c.task()
	if err != nil {
		return "", 0, err
	}
	r := report{}
	hasToken := false
	r.object("", body, append([]string{"lease_token"}, names...), func(name string, value []byte) {
		if name == "lease_token" {
			hasToken = true
			r.integer(name, value, 1, math.MaxInt64, &fence)
			return
		}
		member(&r, name, value)
	})
	if !hasToken {
		r.add("lease_token", "is missing: set it to the lease_token that came with the task")
	}
	if err := r.problem("the request is wrong"); err != nil {
		return "", 0, err
	}
	if !ok {
		return "", 0, notFound("task not found")
	}
	return id, fence, c.mayWorkOn(id)
}

// mayWorkOn a task who may work on its queue. The lease token alone proves too little: it is a small number. Tasks that were leased
// here a short time ago are known; others, as after a restart, are looked up.
func (c *call) mayWorkOn(id string) error {
	s := c.service
	queue, known := s.leases.get(id)
	if !known {
		job, err := s.Store.Get(c.Context(), id)
		if err != nil {
			return taskError(err)
		}
		if job.Executor != jobs.Pool {
			return notFound("task not found: the job runs in pods")
		}
		queue = job.Queue
		s.leases.put(id, queue)
	}
	err := s.mayWork(c, queue)
	if problemOfNil(err).status == http.StatusForbidden {
		return notFound("task not found, or the token does not cover its queue")
	}
	return err
}

func (s *service) heartbeat(c *call) error {
	id, fence, err := c.leased(nil, nil)
	if err != nil {
		return err
	}
	expires, cancel, err := s.Store.Heartbeat(c.Context(), id, fence)
	if err != nil {
		return taskError(err)
	}
	out := appendTime(append(make([]byte, 0, 96), `{"lease_expires_at":`...), expires)
	out = strconv.AppendBool(append(out, `,"cancel":`...), cancel)
	c.answer(http.StatusOK, append(out, "}\n"...))
	return nil
}

func (s *service) completeTask(c *call) error {
	result := noConfig
	id, fence, err := c.leased([]string{"result"}, func(r *report, name string, value []byte) {
		r.json(name, value, maxResult, &result)
	})
	if err != nil {
		return err
	}
	job, err := s.Store.Complete(c.Context(), id, fence, json.RawMessage(result))
	if err != nil {
		return taskError(err)
	}
	c.ended(&job)
	return nil
}

func (s *service) failTask(c *call) error {
	failure := jobs.Failure{Message: "the worker gave no message", Retryable: true}
	id, fence, err := c.leased([]string{"message", "retryable"}, func(r *report, name string, value []byte) {
		if name == "retryable" {
			r.boolean(name, value, &failure.Retryable)
		} else {
			r.text(name, value, &failure.Message)
		}
	})
	if err != nil {
		return err
	}
	failure.Message = lastPart(failure.Message)
	job, err := s.Store.Fail(c.Context(), id, fence, failure)
	if err != nil {
		return taskError(err)
	}
	c.ended(&job)
	return nil
}

// lastPart of a message, where the cause stands, as far as it can be kept. A worker that failed is not sent away for how it says so.
func lastPart(message string) string {
	message = strings.ToValidUTF8(strings.ReplaceAll(message, "\x00", "\uFFFD"), "\uFFFD")
	if len(message) > maxFailure {
		message = "…" + strings.ToValidUTF8(message[len(message)-maxFailure:], "")
	}
	return message
}

func taskError(err error) error {
	if errors.Is(err, jobs.ErrNotFound) {
		return notFound("task not found")
	}
	return err
}

func (c *call) ended(job *jobs.Job) {
	out := appendText(append(make([]byte, 0, 96), `{"id":`...), job.ID)
	out = appendText(append(out, `,"status":`...), string(job.Status))
	c.answer(http.StatusOK, append(out, "}\n"...))
}
