package rest

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/auth"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

// jobsOfQueue of each status that GET /queues/{name} reports.
const jobsOfQueue = 50

type queueAnswer struct {
	Name                string   `json:"name"`
	Depth               int      `json:"depth"`
	Processing          int      `json:"processing"`
	MaxConcurrency      *int     `json:"max_concurrency"`
	OldestJobAgeSeconds *float64 `json:"oldest_job_age_seconds"`
	PoolDepth           int      `json:"pool_depth"`
	PoolProcessing      int      `json:"pool_processing"`

	stats jobs.QueueStats
}

type queuesAnswer struct {
	Queues []queueAnswer `json:"queues"`
	Totals queueTotals   `json:"totals"`
}

type queueTotals struct {
	Queues         int `json:"queues"`
	Depth          int `json:"depth"`
	Processing     int `json:"processing"`
	PoolDepth      int `json:"pool_depth"`
	PoolProcessing int `json:"pool_processing"`
}

type queueDetailAnswer struct {
	queueAnswer
	Jobs  json.RawMessage `json:"jobs"`
	Stats queueStats      `json:"stats"`
}

type queueStats struct {
	JobsProcessed1h          int     `json:"jobs_processed_1h"`
	AvgWaitTimeSeconds       float64 `json:"avg_wait_time_seconds"`
	AvgProcessingTimeSeconds float64 `json:"avg_processing_time_seconds"`
}

// queues are those that have or had jobs, and those that Kubernetes has, by name.
func (s *service) queues(c *call) ([]queueAnswer, error) {
	stats, err := s.Store.Queues(c.Context())
	if err != nil {
		return nil, err
	}
	limits := map[string]int{}
	if s.Kubernetes != nil {
		if limits, err = s.Kubernetes.QueueLimits(c.Context()); err != nil {
			return nil, err
		}
	}
	known := map[string]bool{}
	for i := range stats {
		known[stats[i].Name] = true
	}
	for name := range limits {
		if !known[name] {
			stats = append(stats, jobs.QueueStats{Name: name})
		}
	}
	answers := make([]queueAnswer, 0, len(stats))
	for _, q := range stats {
		answer := queueAnswer{
			Name: q.Name, Depth: q.Depth, Processing: q.Processing, PoolDepth: q.PoolDepth, PoolProcessing: q.PoolProcessing, stats: q,
		}
		if limit, ok := limits[q.Name]; ok {
			answer.MaxConcurrency = &limit
		}
		if !q.OldestQueuedAt.IsZero() {
			age := max(0, s.Now().Sub(q.OldestQueuedAt).Seconds())
			answer.OldestJobAgeSeconds = &age
		}
		answers = append(answers, answer)
	}
	slices.SortFunc(answers, func(a, b queueAnswer) int { return strings.Compare(a.Name, b.Name) })
	return answers, nil
}

func (s *service) listQueues(c *call) error {
	if err := s.mayRead(c, auth.Queues, ""); err != nil {
		return err
	}
	queues, err := s.queues(c)
	if err != nil {
		return err
	}
	answer := queuesAnswer{Queues: queues}
	for _, q := range queues {
		answer.Totals.Queues++
		answer.Totals.Depth += q.Depth
		answer.Totals.Processing += q.Processing
		answer.Totals.PoolDepth += q.PoolDepth
		answer.Totals.PoolProcessing += q.PoolProcessing
	}
	return c.answerValue(http.StatusOK, answer)
}

func (s *service) getQueue(c *call) error {
	name := c.PathValue("name")
	if err := s.mayRead(c, auth.Queues, name); err != nil {
		return err
	}
	queues, err := s.queues(c)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(queues, func(q queueAnswer) bool { return q.Name == name })
	if i < 0 {
		return jobs.ErrNotFound
	}
	list, err := s.jobsOf(c, name)
	if err != nil {
		return err
	}
	q := queues[i]
	return c.answerValue(http.StatusOK, queueDetailAnswer{queueAnswer: q, Jobs: list, Stats: queueStats{
		JobsProcessed1h:          q.stats.Processed1h,
		AvgWaitTimeSeconds:       q.stats.AverageWait.Seconds(),
		AvgProcessingTimeSeconds: q.stats.AverageExecution.Seconds(),
	}})
}

// jobsOf are the newest jobs of a queue that run or wait, as far as the token is good for their namespaces.
func (s *service) jobsOf(c *call, queue string) (json.RawMessage, error) {
	var newest []jobs.Job
	namespaces, err := s.access.Readable(c.Context(), c.identity, "")
	if isForbidden(err) {
		return json.RawMessage("[]"), nil
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
	return appendList(nil, newest, appendSummary), nil
}

// mayRead checks a resource that is in no namespace.
func (s *service) mayRead(c *call, resource, name string) error {
	verb := "list"
	if name != "" {
		verb = "get"
	}
	return s.access.Check(c.Context(), c.identity, auth.Attributes{Verb: verb, Resource: resource, Name: name})
}
