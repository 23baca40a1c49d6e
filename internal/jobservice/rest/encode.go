package rest

import (
	"encoding/json"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

// Answers about jobs are written without reflection, because there are very many of them.

// appendText appends a JSON string.
func appendText(out []byte, text string) []byte {
	plain := utf8.ValidString(text)
	for i := 0; plain && i < len(text); i++ {
		plain = text[i] >= ' ' && text[i] != '"' && text[i] != '\\' && text[i] != 0x7f && text[i] != '<' && text[i] != '>' && text[i] != '&'
	}
	if plain {
		out = append(out, '"')
		out = append(out, text...)
		return append(out, '"')
	}
	quoted, _ := json.Marshal(text) // A text can always be written.
	return append(out, quoted...)
}

// appendTime appends a time with microseconds, in UTC; null when there is none.
func appendTime(out []byte, at time.Time) []byte {
	if at.IsZero() {
		return append(out, "null"...)
	}
	out = append(out, '"')
	out = at.UTC().AppendFormat(out, "2006-01-02T15:04:05.000000Z")
	return append(out, '"')
}

func appendRaw(out []byte, raw json.RawMessage, otherwise string) []byte {
	if len(raw) == 0 {
		return append(out, otherwise...)
	}
	return append(out, raw...)
}

func appendTextOrNull(out []byte, text string) []byte {
	if text == "" {
		return append(out, "null"...)
	}
	return appendText(out, text)
}

// appendList appends a list of values.
func appendList[T any](out []byte, values []T, appendValue func([]byte, *T) []byte) []byte {
	out = append(out, '[')
	for i := range values {
		if i > 0 {
			out = append(out, ',')
		}
		out = appendValue(out, &values[i])
	}
	return append(out, ']')
}

// created is a submitted job, with its place in its queue.
type created struct {
	*jobs.Job
	position int
}

// appendCreated appends the answer to a submission.
func appendCreated(out []byte, job *created) []byte {
	out = appendText(append(out, `{"id":`...), job.ID)
	out = appendText(append(out, `,"job_type":`...), job.Type)
	out = strconv.AppendInt(append(out, `,"priority":`...), int64(job.Priority), 10)
	out = appendText(append(out, `,"status":`...), string(job.Status))
	out = appendTime(append(out, `,"created_at":`...), job.CreatedAt)
	out = strconv.AppendInt(append(out, `,"queue_position":`...), int64(job.position), 10)
	out = appendText(append(out, `,"namespace":`...), job.Namespace)
	out = appendText(append(out, `,"queue":`...), job.Queue)
	return append(out, '}')
}

// appendSummary appends a job without its config and result, which may be large.
func appendSummary(out []byte, job *jobs.Job) []byte { return appendJob(out, job, false) }

// appendJob appends a job. Whole jobs have their config and result, too.
func appendJob(out []byte, job *jobs.Job, whole bool) []byte {
	out = appendText(append(out, `{"id":`...), job.ID)
	out = appendText(append(out, `,"namespace":`...), job.Namespace)
	out = appendText(append(out, `,"queue":`...), job.Queue)
	out = appendText(append(out, `,"job_type":`...), job.Type)
	out = appendText(append(out, `,"executor":`...), string(job.Executor))
	out = strconv.AppendInt(append(out, `,"priority":`...), int64(job.Priority), 10)
	out = appendText(append(out, `,"status":`...), string(job.Status))
	out = appendTextOrNull(append(out, `,"image":`...), job.Image)
	if whole {
		out = appendRaw(append(out, `,"config":`...), job.Config, "{}")
	}
	out = appendResources(append(out, `,"resources":`...), job.Resources)
	out = strconv.AppendBool(append(out, `,"gang":{"enabled":`...), job.Gang.Enabled)
	out = strconv.AppendInt(append(out, `,"min_members":`...), int64(max(1, job.Gang.MinMembers)), 10)
	out = appendTextOrNull(append(out, `,"topology":`...), job.Gang.Topology)
	out = appendTimeout(append(out, `},"timeout_seconds":`...), job.Timeout)
	out = strconv.AppendInt(append(out, `,"retry_policy":{"max_retries":`...), int64(job.Retry.MaxRetries), 10)
	out = strconv.AppendFloat(append(out, `,"backoff_multiplier":`...), job.Retry.BackoffMultiplier, 'f', -1, 64)
	out = appendText(append(out, `},"submitter":`...), job.Submitter)
	out = appendTime(append(out, `,"created_at":`...), job.CreatedAt)
	out = appendTime(append(out, `,"queued_at":`...), job.QueuedAt)
	out = appendTime(append(out, `,"started_at":`...), job.StartedAt)
	out = appendTime(append(out, `,"completed_at":`...), job.CompletedAt)
	out = appendTime(append(out, `,"next_retry_at":`...), job.NextRetryAt)
	out = strconv.AppendInt(append(out, `,"retry_count":`...), int64(job.RetryCount), 10)
	out = appendTextOrNull(append(out, `,"worker_id":`...), job.WorkerID)
	out = appendTextOrNull(append(out, `,"error":`...), job.Error)
	if whole {
		out = appendRaw(append(out, `,"result":`...), job.Result, "null")
	}
	out = append(out, `,"logs_url":"`+Base+`/jobs/`...)
	out = append(out, job.ID...)
	return append(out, `/logs"}`...)
}

func appendTimeout(out []byte, timeout time.Duration) []byte {
	if timeout == 0 {
		return append(out, "null"...)
	}
	return strconv.AppendInt(out, int64(timeout/time.Second), 10)
}

func appendResources(out []byte, resources jobs.Resources) []byte {
	out = appendTextOrNull(append(out, `{"cpu":`...), resources.CPU)
	out = appendTextOrNull(append(out, `,"memory":`...), resources.Memory)
	out = strconv.AppendInt(append(out, `,"gpu":`...), int64(resources.GPU), 10)
	return append(out, '}')
}

// appendLease appends a task for a worker.
func appendLease(out []byte, lease *jobs.Lease) []byte {
	job := &lease.Job
	out = appendText(append(out, `{"id":`...), job.ID)
	out = strconv.AppendInt(append(out, `,"lease_token":`...), lease.Fence, 10)
	out = appendText(append(out, `,"job_type":`...), job.Type)
	out = appendText(append(out, `,"namespace":`...), job.Namespace)
	out = appendRaw(append(out, `,"config":`...), job.Config, "{}")
	out = appendResources(append(out, `,"resources":`...), job.Resources)
	out = appendTimeout(append(out, `,"timeout_seconds":`...), job.Timeout)
	out = strconv.AppendInt(append(out, `,"attempt":`...), int64(job.RetryCount)+1, 10)
	out = appendTime(append(out, `,"lease_expires_at":`...), lease.ExpiresAt)
	out = strconv.AppendFloat(append(out, `,"visibility_timeout_seconds":`...), lease.Visibility.Seconds(), 'f', -1, 64)
	return append(out, '}')
}
