package rest

import (
	"bytes"
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

// buffers for bodies and answers of the usual size.
var buffers = sync.Pool{New: func() any { return new(buffer) }}

type buffer struct{ in, out [4096]byte }

func (s *service) createJob(c *call) error {
	b := buffers.Get().(*buffer)
	defer buffers.Put(b)
	body, err := c.body(maxJobBytes, b.in[:0])
	if err != nil {
		return err
	}
	if p := readObject(body); p != nil {
		return p
	}
	r := report{}
	job := readJob(body, &r)
	if err := r.problem("the job cannot be accepted"); err != nil {
		return err
	}
	if err := s.mayCreate(c, job); err != nil {
		return err
	}
	positions, err := s.Store.Submit(c.Context(), []*jobs.Job{job})
	if err != nil {
		return err
	}
	c.submitted(job, http.StatusCreated)
	c.w.Header()["Location"] = []string{Base + "/jobs/" + job.ID}
	c.answer(http.StatusCreated, append(appendCreated(b.out[:0], job, positions[0]), '\n'))
	return nil
}

// mayCreate fills in who submits the job and to where, if they may.
func (s *service) mayCreate(c *call, job *jobs.Job) error {
	job.Submitter = c.identity.User.Name
	if job.Namespace == "" {
		job.Namespace = c.identity.DefaultNamespace
	}
	return s.access.Check(c.Context(), c.identity, auth.Attributes{Verb: "create", Resource: auth.Jobs, Namespace: job.Namespace})
}

func (s *service) createJobs(c *call) error {
	body, err := c.body(maxBatchBytes, nil)
	if err != nil {
		return err
	}
	if p := readObject(body); p != nil {
		return p
	}
	r := report{}
	batch := readBatch(bytes.TrimSpace(body), &r)
	if err := r.problem("no job was accepted"); err != nil {
		return err
	}
	for i, job := range batch {
		if err := s.mayCreate(c, job); err != nil {
			p := problemOf(err)
			if p.status == http.StatusForbidden {
				refused := *p
				refused.details = []detail{{"jobs[" + strconv.Itoa(i) + "].namespace", p.message}}
				return &refused
			}
			return err
		}
	}
	positions, err := s.Store.Submit(c.Context(), batch)
	if err != nil {
		return err
	}
	out := append(make([]byte, 0, 256*len(batch)), `{"items":[`...)
	for i, job := range batch {
		if i > 0 {
			out = append(out, ',')
		}
		out = appendCreated(out, job, positions[i])
		c.submitted(job, http.StatusCreated)
	}
	c.answer(http.StatusCreated, append(out, "]}\n"...))
	return nil
}

func readBatch(body []byte, r *report) []*jobs.Job {
	var batch []*jobs.Job
	given := false
	r.object("", body, []string{"jobs"}, func(name string, value []byte) {
		given = true
		if value[0] != '[' {
			r.wrongKind(name, value, "a list of jobs")
			return
		}
		elements(value, func(i int, value []byte) {
			switch {
			case i > maxBatch:
			case i == maxBatch:
				r.add(name, "has more than %d jobs: send several batches", maxBatch)
			case value[0] != '{':
				r.wrongKind("jobs["+strconv.Itoa(i)+"]", value, "a job, which is an object")
			default:
				r.prefix = "jobs[" + strconv.Itoa(i) + "]."
				batch = append(batch, readJob(value, r))
				r.prefix = ""
			}
		})
		if len(batch) == 0 && len(r.details) == 0 {
			r.add(name, "is empty: send 1 to %d jobs", maxBatch)
		}
	})
	if !given && len(r.details) == 0 {
		r.add("jobs", "is missing: send 1 to %d jobs", maxBatch)
	}
	return batch
}

func (s *service) listJobs(c *call) error {
	q := c.query("status", "job_type", "priority_min", "limit", "offset", "namespace", "queue")
	filter := jobs.Filter{
		Status:      jobs.Status(q.oneOf("status", statuses)),
		Type:        q.oneOf("job_type", jobTypes),
		PriorityMin: q.integer("priority_min", 0, 0, maxPriority),
		Limit:       q.integer("limit", 50, 1, 100),
		Offset:      q.integer("offset", 0, 0, 1_000_000),
		Queue:       q.label("queue"),
	}
	namespace := q.label("namespace")
	if err := q.problem("the query is wrong"); err != nil {
		return err
	}
	var err error
	if filter.Namespaces, err = s.access.Readable(c.Context(), c.identity, namespace); err != nil {
		return err
	}
	items, total, err := s.Store.List(c.Context(), filter)
	if err != nil {
		return err
	}
	out := append(make([]byte, 0, 64+768*len(items)), `{"items":[`...)
	for i := range items {
		if i > 0 {
			out = append(out, ',')
		}
		out = appendJob(out, &items[i], false)
	}
	out = strconv.AppendInt(append(out, `],"total":`...), int64(total), 10)
	out = strconv.AppendInt(append(out, `,"limit":`...), int64(filter.Limit), 10)
	out = strconv.AppendInt(append(out, `,"offset":`...), int64(filter.Offset), 10)
	c.answer(http.StatusOK, append(out, "}\n"...))
	return nil
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
	err = c.service.access.Check(c.Context(), c.identity, auth.Attributes{Verb: "get", Resource: auth.Jobs, Namespace: job.Namespace})
	if problemOfNil(err).status == http.StatusForbidden {
		err = jobs.ErrNotFound
	}
	return job, err
}

func problemOfNil(err error) *problem {
	if err == nil {
		return &problem{}
	}
	return problemOf(err)
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

func (s *service) getJob(c *call) error {
	job, err := c.readable()
	if err != nil {
		return err
	}
	if err := c.query().problem("the query is wrong"); err != nil {
		return err
	}
	c.answer(http.StatusOK, append(appendJob(make([]byte, 0, 1024+len(job.Config)+len(job.Result)), &job, true), '\n'))
	return nil
}

func (s *service) cancelJob(c *call) error {
	job, err := c.changeable("delete")
	if err != nil {
		return err
	}
	if job, err = s.Store.Cancel(c.Context(), job.ID, c.identity.User.Name); err != nil {
		return err
	}
	c.audit("jobs.cancel", job.Namespace, job.ID, http.StatusOK, "")
	out := appendText(append(make([]byte, 0, 160), `{"id":`...), job.ID)
	out = appendText(append(out, `,"status":`...), string(job.Status))
	out = appendTime(append(out, `,"cancelled_at":`...), job.CompletedAt)
	c.answer(http.StatusOK, append(out, "}\n"...))
	return nil
}

func (s *service) requeueJob(c *call) error {
	job, err := c.changeable("create")
	if err != nil {
		return err
	}
	if job, err = s.Store.Requeue(c.Context(), job.ID, c.identity.User.Name); err != nil {
		return err
	}
	c.audit("jobs.requeue", job.Namespace, job.ID, http.StatusOK, "")
	c.answer(http.StatusOK, append(appendJob(make([]byte, 0, 1024+len(job.Config)), &job, true), '\n'))
	return nil
}

// changeable returns the job of the path for who may read it and do something to it. Creating is what requeueing needs:
// it makes the cluster work as a new job does.
func (c *call) changeable(verb string) (jobs.Job, error) {
	if err := c.query().problem("the query is wrong"); err != nil {
		return jobs.Job{}, err
	}
	job, err := c.readable()
	if err != nil {
		return job, err
	}
	return job, c.service.access.Check(c.Context(), c.identity, auth.Attributes{Verb: verb, Resource: auth.Jobs, Namespace: job.Namespace})
}
