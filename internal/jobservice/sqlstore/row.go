package sqlstore

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

// spec has the fields of a job that never change and are not filtered by.
type spec struct {
	Image     string          `json:"image,omitempty"`
	Config    json.RawMessage `json:"config,omitempty"`
	Resources jobs.Resources  `json:"resources,omitzero"`
	Gang      jobs.Gang       `json:"gang,omitzero"`
	Timeout   int64           `json:"timeoutMilliseconds,omitempty"`
	Retries   int             `json:"maxRetries,omitempty"`
	Backoff   float64         `json:"backoffMultiplier,omitempty"`
	Groups    []string        `json:"submitterGroups,omitempty"`
}

func encodeSpec(job *jobs.Job) (string, error) {
	text, err := json.Marshal(spec{
		Image: job.Image, Config: job.Config, Resources: job.Resources, Gang: job.Gang, Timeout: job.Timeout.Milliseconds(),
		Retries: job.Retry.MaxRetries, Backoff: job.Retry.BackoffMultiplier, Groups: job.SubmitterGroups,
	})
	return string(text), err
}

func decodeSpec(text []byte, job *jobs.Job) error {
	var s spec
	if err := json.Unmarshal(text, &s); err != nil {
		return fmt.Errorf("the spec of job %s: %w", job.ID, err)
	}
	job.Image, job.Config, job.Resources, job.Gang, job.SubmitterGroups = s.Image, s.Config, s.Resources, s.Gang, s.Groups
	job.Timeout = time.Duration(s.Timeout) * time.Millisecond
	job.Retry = jobs.Retry{MaxRetries: s.Retries, BackoffMultiplier: s.Backoff}
	return nil
}

// columns in the order in which scan reads them.
const columns = `namespace, queue, type, executor, priority, submitter, spec, status, created_at, queued_at, started_at, completed_at,
  next_retry_at, retry_count, worker_id, fence, lease_id, settled, result, error`

// scan reads a row of the ID and columns.
func scan(from row) (*Row, error) {
	var (
		r                                               Row
		text                                            []byte
		result                                          string
		created, queued, started, completed, retryAfter int64
	)
	err := from.Scan(&r.ID, &r.Namespace, &r.Queue, &r.Type, &r.Executor, &r.Priority, &r.Submitter, &text, &r.Status, &created, &queued,
		&started, &completed, &retryAfter, &r.RetryCount, &r.WorkerID, &r.Fence, &r.LeaseID, &r.Settled, &result, &r.Error)
	if err != nil {
		return nil, err
	}
	r.CreatedAt, r.QueuedAt, r.StartedAt = fromMicros(created), fromMicros(queued), fromMicros(started)
	r.CompletedAt, r.NextRetryAt = fromMicros(completed), fromMicros(retryAfter)
	if result != "" {
		r.Result = json.RawMessage(result)
	}
	return &r, decodeSpec(text, &r.Job)
}

// insertedColumns are those of new jobs: the arguments of the statements that insert them.
func insertedColumns(rows []*Row) ([][]any, error) {
	all := make([][]any, len(rows))
	for i, r := range rows {
		text, err := encodeSpec(&r.Job)
		if err != nil {
			return nil, err
		}
		all[i] = []any{r.ID, r.Namespace, r.Queue, r.Type, string(r.Executor), r.Priority, r.Submitter, text, micros(r.CreatedAt)}
	}
	return all, nil
}

// updatedColumns are those that change, after the ID.
func updatedColumns(rows []*Row) [][]any {
	all := make([][]any, len(rows))
	for i, r := range rows {
		all[i] = []any{
			r.ID, string(r.Status), micros(r.QueuedAt), micros(r.StartedAt), micros(r.CompletedAt), micros(r.NextRetryAt),
			r.RetryCount, r.WorkerID, r.Fence, r.LeaseID, r.Settled, string(r.Result), r.Error,
		}
	}
	return all
}

func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func fromMicros(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMicro(n).UTC()
}

// firstID is the least UUID of version 7 of a time.
func firstID(t time.Time) string {
	ms := t.UnixMilli()
	return fmt.Sprintf("%08x-%04x-7000-8000-000000000000", ms>>16, ms&0xffff)
}
