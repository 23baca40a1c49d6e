package rest

import (
	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

// jobsOfQueue of each status that GET /queues/{name} reports.
const jobsOfQueue = 50

// queue has its figures, and how many of its jobs may run at a time as the AIJobQueue says; 0: there is none.
type queue struct {
	jobs.QueueStats
	limit int
}

// queues are those that have or had jobs, and those that Kubernetes has, by name.
func (s *service) queues(c *call) (map[string]queue, error) {
	stats, err := s.Store.Queues(c.Context())
	if err != nil {
		return nil, err
	}
	queues := map[string]queue{}
	if s.Kubernetes != nil {
		limits, err := s.Kubernetes.QueueLimits(c.Context())
		if err != nil {
			return nil, err
		}
		for name, limit := range limits {
			queues[name] = queue{jobs.QueueStats{Name: name}, limit}
		}
	}
	for _, q := range stats {
		queues[q.Name] = queue{q, queues[q.Name].limit}
	}
	return queues, nil
}

// appendQueue appends a queue, which is to be ended.
func (s *service) appendQueue(out []byte, q queue) object {
	o := begin(out).text("name", q.Name).integer("depth", q.Depth).integer("processing", q.Processing).integerOrNull("max_concurrency", q.limit)
	if q.OldestQueuedAt.IsZero() {
		o = o.json("oldest_job_age_seconds", null)
	} else {
		o = o.number("oldest_job_age_seconds", max(0, s.Now().Sub(q.OldestQueuedAt).Seconds()))
	}
	return o.integer("pool_depth", q.PoolDepth).integer("pool_processing", q.PoolProcessing)
}

func (s *service) listQueues(c *call) ([]byte, error) {
	queues, err := s.queues(c)
	if err != nil {
		return nil, err
	}
	var all []queue
	var total jobs.QueueStats
	for _, q := range sorted(queues) {
		all = append(all, q)
		total.Depth += q.Depth
		total.Processing += q.Processing
		total.PoolDepth += q.PoolDepth
		total.PoolProcessing += q.PoolProcessing
	}
	answer := list(begin(nil), "queues", all, func(out []byte, q *queue) object { return s.appendQueue(out, *q).end() }).object("totals").
		integer("queues", len(all)).integer("depth", total.Depth).integer("processing", total.Processing).
		integer("pool_depth", total.PoolDepth).integer("pool_processing", total.PoolProcessing)
	return answer.end().end(), nil
}

func (s *service) getQueue(c *call) ([]byte, error) {
	name := c.PathValue("name")
	queues, err := s.queues(c)
	if err != nil {
		return nil, err
	}
	q, known := queues[name]
	if !known {
		return nil, jobs.ErrNotFound
	}
	newest, err := s.jobsOf(c, name)
	if err != nil {
		return nil, err
	}
	answer := list(s.appendQueue(nil, q), "jobs", newest, appendSummary).object("stats").integer("jobs_processed_1h", q.Processed1h).
		number("avg_wait_time_seconds", q.AverageWait.Seconds()).number("avg_processing_time_seconds", q.AverageExecution.Seconds())
	return answer.end().end(), nil
}

// jobsOf are the newest jobs of a queue that run or wait, as far as the token is good for their namespaces.
func (s *service) jobsOf(c *call, queue string) (newest []jobs.Job, err error) {
	namespaces, err := s.access.Readable(c.Context(), c.identity, "")
	if isForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, status := range []jobs.Status{jobs.Running, jobs.Queued} {
		items, _, err := s.Store.List(c.Context(), jobs.Filter{Namespaces: namespaces, Queue: queue, Status: status, Limit: jobsOfQueue})
		if err != nil {
			return nil, err
		}
		newest = append(newest, items...)
	}
	return newest, nil
}
