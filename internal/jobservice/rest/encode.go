package rest

import (
	"encoding/json"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

// object is JSON that is written member by member. Answers about jobs are written without reflection, because there are very many of them.
type object []byte

// begin an object behind other JSON.
func begin(out []byte) object { return append(out, '{') }

// end the object, or the one that was begun last in it.
func (o object) end() object { return append(o, '}') }

func (o object) member(name string) object {
	if o[len(o)-1] != '{' {
		o = append(o, ',')
	}
	o = append(append(o, '"'), name...)
	return append(o, `":`...)
}

func (o object) object(name string) object { return begin(o.member(name)) }

func (o object) integer(name string, value int) object {
	return strconv.AppendInt(o.member(name), int64(value), 10)
}

// integerOrNull is null when it is 0.
func (o object) integerOrNull(name string, value int) object {
	if value == 0 {
		return o.json(name, null)
	}
	return o.integer(name, value)
}

func (o object) number(name string, value float64) object {
	return strconv.AppendFloat(o.member(name), value, 'f', -1, 64)
}

func (o object) boolean(name string, value bool) object {
	return strconv.AppendBool(o.member(name), value)
}

// json is null when there is none.
func (o object) json(name string, value json.RawMessage) object {
	if len(value) == 0 {
		value = null
	}
	return append(o.member(name), value...)
}

var null = json.RawMessage("null")

func (o object) text(name, value string) object {
	plain := utf8.ValidString(value)
	for i := 0; plain && i < len(value); i++ {
		c := value[i]
		plain = c >= ' ' && c != '"' && c != '\\' && c != 0x7f && c != '<' && c != '>' && c != '&'
	}
	if !plain {
		quoted, _ := json.Marshal(value) // A text can always be written.
		return o.json(name, quoted)
	}
	o = append(append(o.member(name), '"'), value...)
	return append(o, '"')
}

// textOrNull is null when the text is empty.
func (o object) textOrNull(name, value string) object {
	if value == "" {
		return o.json(name, null)
	}
	return o.text(name, value)
}

// time has microseconds, in UTC; it is null when it is zero.
func (o object) time(name string, at time.Time) object {
	if at.IsZero() {
		return o.json(name, null)
	}
	o = at.UTC().AppendFormat(append(o.member(name), '"'), "2006-01-02T15:04:05.000000Z")
	return append(o, '"')
}

// value is what has no method of its own, and can always be written.
func (o object) value(name string, value any) object {
	encoded, _ := json.Marshal(value)
	return o.json(name, encoded)
}

// list is a member with several values; add appends one of them.
func list[T any](o object, name string, values []T, add func([]byte, *T) object) object {
	o = append(o.member(name), '[')
	for i := range values {
		if i > 0 {
			o = append(o, ',')
		}
		o = add(o, &values[i])
	}
	return append(o, ']')
}

// created is a submitted job, with its place in its queue.
type created struct {
	*jobs.Job
	position int
}

// appendCreated appends the answer to a submission.
func appendCreated(out []byte, job *created) object {
	return begin(out).text("id", job.ID).text("job_type", job.Type).integer("priority", job.Priority).text("status", string(job.Status)).
		time("created_at", job.CreatedAt).integer("queue_position", job.position).text("namespace", job.Namespace).text("queue", job.Queue).end()
}

// appendSummary appends a job without its config and result, which may be large.
func appendSummary(out []byte, job *jobs.Job) object { return appendJob(out, job, false) }

// appendJob appends a job. Whole jobs have their config and result, too.
func appendJob(out []byte, job *jobs.Job, whole bool) object {
	o := begin(out).text("id", job.ID).text("namespace", job.Namespace).text("queue", job.Queue).text("job_type", job.Type).
		text("executor", string(job.Executor)).integer("priority", job.Priority).text("status", string(job.Status)).textOrNull("image", job.Image)
	if whole {
		o = o.config(job)
	}
	o = o.resources(job.Resources).
		object("gang").boolean("enabled", job.Gang.Enabled).integer("min_members", max(1, job.Gang.MinMembers)).
		textOrNull("topology", job.Gang.Topology).end().
		integerOrNull("timeout_seconds", int(job.Timeout.Seconds())).
		object("retry_policy").integer("max_retries", job.Retry.MaxRetries).number("backoff_multiplier", job.Retry.BackoffMultiplier).end().
		text("submitter", job.Submitter).
		time("created_at", job.CreatedAt).time("queued_at", job.QueuedAt).time("started_at", job.StartedAt).
		time("completed_at", job.CompletedAt).time("next_retry_at", job.NextRetryAt).integer("retry_count", job.RetryCount).
		textOrNull("worker_id", job.WorkerID).textOrNull("error", job.Error)
	if whole {
		o = o.json("result", job.Result)
	}
	return o.text("logs_url", Base+"/jobs/"+job.ID+"/logs").end()
}

// appendLease appends a task for a worker.
func appendLease(out []byte, lease *jobs.Lease) object {
	job := &lease.Job
	return begin(out).text("id", job.ID).integer("lease_token", int(lease.Fence)).text("job_type", job.Type).text("namespace", job.Namespace).
		config(job).resources(job.Resources).integerOrNull("timeout_seconds", int(job.Timeout.Seconds())).integer("attempt", job.RetryCount+1).
		time("lease_expires_at", lease.ExpiresAt).number("visibility_timeout_seconds", lease.Visibility.Seconds()).end()
}

func (o object) config(job *jobs.Job) object {
	if len(job.Config) == 0 {
		return o.json("config", noConfig)
	}
	return o.json("config", job.Config)
}

func (o object) resources(r jobs.Resources) object {
	return o.object("resources").textOrNull("cpu", r.CPU).textOrNull("memory", r.Memory).integer("gpu", r.GPU).end()
}
