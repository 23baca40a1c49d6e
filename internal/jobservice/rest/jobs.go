package rest

import (
	"fmt"
	"net/http"
	"strconv"
	"sync"

	"github.com/google/uuid"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/auth"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

const (
	maxJobBytes   = 1 << 20
	maxBatchBytes = 16 << 20
	maxBatch      = 1000
)

// actionCreate is what the audit log calls the submission of a job.
const actionCreate = "jobs.create"

// buffers for bodies and answers of the usual size.
var buffers = sync.Pool{New: func() any { return new(buffer) }}

type buffer struct{ in, out [4096]byte }

func (s *service) createJob(c *call) ([]byte, error) {
	b := buffers.Get().(*buffer)
	defer buffers.Put(b)
	body, err := c.body(maxJobBytes, b.in[:0])
	if err != nil {
		return nil, err
	}
	job, details := readJob(body)
	if err := problemWith("the job cannot be accepted", details); err != nil {
		return nil, err
	}
	if err := s.mayCreate(c, job); err != nil {
		return nil, err
	}
	positions, err := s.submit(c, []*jobs.Job{job})
	if err != nil {
		return nil, err
	}
	c.gather(actionCreate, http.StatusCreated, job)
	c.w.Header()["Location"] = []string{Base + "/jobs/" + job.ID}
	c.answer(http.StatusCreated, appendCreated(b.out[:0], &created{job, positions[0]}))
	return nil, nil
}

// admit jobs of a user, as far as the limits of the client, and of open jobs, go. They are to be settled.
func (s *service) admit(c *call, user string, batch []*jobs.Job) (admitted, error) {
	if err := c.countJobs(len(batch)); err != nil {
		return nil, err
	}
	return s.open.admit(c.Context(), user, batch)
}

func (s *service) submit(c *call, batch []*jobs.Job) (positions []int, err error) {
	admitted, err := s.admit(c, c.identity.User.Username, batch)
	if err != nil {
		return nil, err
	}
	defer admitted.settle()
	return s.Store.Submit(c.Context(), batch)
}

// mayCreate fills in who submits the job and to where, if they may.
func (s *service) mayCreate(c *call, job *jobs.Job) error {
	job.Submitter = c.identity.User.Username
	if job.Executor == jobs.Kubernetes {
		job.SubmitterGroups = c.identity.User.Groups
	}
	if job.Namespace == "" {
		job.Namespace = c.identity.DefaultNamespace
	}
	return c.mayDo("create", job)
}

func (s *service) createJobs(c *call) ([]byte, error) {
	var batch []*jobs.Job
	jobsOfBatch := required("jobs", fmt.Sprintf("send 1 to %d jobs", maxBatch), asBatch(&batch))
	if err := c.read(maxBatchBytes, "no job was accepted", jobsOfBatch); err != nil {
		return nil, err
	}
	for i, job := range batch {
		if err := s.mayCreate(c, job); err != nil {
			if !isForbidden(err) {
				return nil, err
			}
			p := problemOf(err)
			p.details = []detail{{"jobs[" + strconv.Itoa(i) + "].namespace", p.message}}
			return nil, p
		}
	}
	positions, err := s.submit(c, batch)
	if err != nil {
		return nil, err
	}
	answers := make([]created, 0, len(batch))
	for i, job := range batch {
		c.gather(actionCreate, http.StatusCreated, job)
		answers = append(answers, created{job, positions[i]})
	}
	c.answer(http.StatusCreated, list(begin(make([]byte, 0, 256*len(batch))), "items", answers, appendCreated).end())
	return nil, nil
}

func (s *service) listJobs(c *call) ([]byte, error) {
	filter := jobs.Filter{Limit: 50}
	var namespace string
	err := c.query(
		optional("status", asText((*string)(&filter.Status), oneOf(statuses))),
		optional("job_type", asText(&filter.Type, oneOf(jobTypes))),
		optional("priority_min", unquoted(asInteger(0, maxPriority, &filter.PriorityMin))),
		optional("limit", unquoted(asInteger(1, 100, &filter.Limit))),
		optional("offset", unquoted(asInteger(0, 1_000_000, &filter.Offset))),
		optional("namespace", asText(&namespace, label)),
		optional("queue", asText(&filter.Queue, label)),
	)
	if err != nil {
		return nil, err
	}
	if filter.Namespaces, err = s.access.Readable(c.Context(), c.identity, namespace); err != nil {
		return nil, err
	}
	items, total, err := s.Store.List(c.Context(), filter)
	answer := list(begin(make([]byte, 0, 64+768*len(items))), "items", items, appendSummary)
	return answer.integer("total", total).integer("limit", filter.Limit).integer("offset", filter.Offset).end(), err
}

var statuses = []string{
	string(jobs.Queued), string(jobs.Scheduled), string(jobs.Running), string(jobs.Retrying),
	string(jobs.Succeeded), string(jobs.Failed), string(jobs.DeadLetter), string(jobs.Cancelled),
}

// readable returns the job of the path. A client that may not read it gets the same answer as for a
// job that does not exist.
func (c *call) readable() (jobs.Job, error) {
	id, ok := jobID(c.PathValue("id"))
	if !ok {
		return jobs.Job{}, jobs.ErrNotFound
	}
	job, err := c.service.Store.Get(c.Context(), id)
	if err != nil {
		return job, err
	}
	err = hidden(c.mayDo("get", &job))
	return job, err
}

// mayDo says whether the client may do something to a job.
func (c *call) mayDo(verb string, job *jobs.Job) error {
	return c.service.access.Check(c.Context(), c.identity, auth.Attributes{Verb: verb, Resource: auth.Jobs, Namespace: job.Namespace})
}

// jobID is the usual form of a UUID; false: no job has such an ID.
func jobID(text string) (string, bool) {
	const length = 36
	if len(text) != length {
		return "", false
	}
	id, err := uuid.Parse(text)
	return id.String(), err == nil
}

func (s *service) getJob(c *call) ([]byte, error) {
	job, err := c.readable()
	return appendJob(make([]byte, 0, 1024+len(job.Config)+len(job.Result)), &job, true), err
}

func (s *service) cancelJob(c *call) ([]byte, error) {
	job, err := c.change("jobs.cancel", "delete", func(job *jobs.Job) (jobs.Job, error) { return s.Store.Cancel(c.Context(), job.ID, c.user()) })
	return begin(nil).text("id", job.ID).text("status", string(job.Status)).time("cancelled_at", job.CompletedAt).end(), err
}

// requeueJob needs the right to create, and is limited as a submission is: it makes the cluster work as a new job does.
func (s *service) requeueJob(c *call) ([]byte, error) {
	job, err := c.change("jobs.requeue", "create", func(job *jobs.Job) (jobs.Job, error) {
		if job.Status == jobs.DeadLetter { // the store refuses others
			admitted, err := s.admit(c, job.Submitter, []*jobs.Job{job})
			if err != nil {
				return *job, err
			}
			defer admitted.settle()
		}
		return s.Store.Requeue(c.Context(), job.ID, c.user())
	})
	return appendJob(make([]byte, 0, 1024+len(job.Config)), &job, true), err
}

// change the job of the path, for who may read it and has the right to verb.
func (c *call) change(action, verb string, do func(*jobs.Job) (jobs.Job, error)) (jobs.Job, error) {
	job, err := c.readable()
	if err != nil {
		return job, err
	}
	if err := c.mayDo(verb, &job); err != nil {
		return job, err
	}
	if job, err = do(&job); err == nil {
		c.audit(action, job.Namespace, job.ID, http.StatusOK, "")
	}
	return job, err
}
