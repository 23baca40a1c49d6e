package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// The errors of a Store, to be asked for with errors.Is.
var (
	// ErrNotFound: there is no such job or queue.
	ErrNotFound = errors.New("not found")
	// ErrEnded: the job has already ended.
	ErrEnded = errors.New("the job has already ended")
	// ErrNotDeadLetter: only jobs in dead_letter can be requeued.
	ErrNotDeadLetter = errors.New("the job is not in dead_letter")
	// ErrLeaseLost: the lease is over or another's, and nothing was changed.
	ErrLeaseLost = errors.New("the lease is lost")
	// ErrUnavailable: a server that is needed does not answer; nothing that was asked for is known to be done.
	ErrUnavailable = errors.New("unavailable")
)

// Store keeps jobs, and hands them to workers. What it acknowledges is durable. Safe for concurrent use.
type Store interface {
	// Submit makes jobs durable and queues them. It fills in ID, Status, times and Fence of each, and returns the place of each in its queue,
	// from 1. All of them are accepted or none.
	Submit(ctx context.Context, jobs []*Job) (positions []int, err error)
	// Get returns a job. Errors: ErrNotFound.
	Get(ctx context.Context, id string) (Job, error)
	// List returns jobs, the newest first, and how many match in all.
	List(ctx context.Context, filter Filter) (items []Job, total int, err error)
	// Cancel ends a job as Cancelled; the worker that has it learns that by its next heartbeat. Errors: ErrNotFound, ErrEnded.
	Cancel(ctx context.Context, id, by string) (Job, error)
	// Requeue puts a job in dead_letter back with all its retries. Errors: ErrNotFound, ErrNotDeadLetter.
	Requeue(ctx context.Context, id, by string) (Job, error)

	// Lease waits up to wait for tasks and gives at most limit of them to a worker; none is no error.
	Lease(ctx context.Context, request LeaseRequest) ([]Lease, error)
	// Heartbeat keeps a lease, and says whether the job should stop (it was cancelled). Errors: ErrNotFound, ErrLeaseLost.
	Heartbeat(ctx context.Context, id string, fence int64) (expiresAt time.Time, cancel bool, err error)
	// Phase notes that a leased job of the executor Kubernetes is Scheduled, Running or Retrying. Errors: ErrNotFound, ErrLeaseLost.
	Phase(ctx context.Context, id string, fence int64, status Status) error
	// Complete ends a leased job as Succeeded. Saying it again with the same fence is no error. Errors: ErrNotFound, ErrLeaseLost.
	Complete(ctx context.Context, id string, fence int64, result json.RawMessage) (Job, error)
	// Fail gives a leased job back: Retrying while there are retries and the failure is retryable, else DeadLetter or Failed.
	// Errors: ErrNotFound, ErrLeaseLost.
	Fail(ctx context.Context, id string, fence int64, failure Failure) (Job, error)

	// OpenIn returns how many jobs of a namespace have not ended.
	OpenIn(ctx context.Context, namespace string) (int, error)
	// OpenOf returns how many jobs that a user submitted have not ended.
	OpenOf(ctx context.Context, user string) (int, error)
	// Queues returns the figures of all queues that have or had jobs in the namespaces; nil: in all.
	Queues(ctx context.Context) ([]QueueStats, error)
	// Metrics returns the figures of the last 24 hours.
	Metrics(ctx context.Context) (Metrics, error)
	// Audit records what a user did. The entry is durable once it is acknowledged.
	Audit(ctx context.Context, entry AuditEntry) error
	// Check says of each server that the store needs (database, redis) why it cannot be used; nil: it can.
	Check(ctx context.Context) map[string]error
}

// Filter of List. Zero fields do not filter.
type Filter struct {
	// Namespaces that may be seen; nil: all.
	Namespaces  []string
	Status      Status
	Type        string
	Queue       string
	PriorityMin int
	Limit       int
	Offset      int
}

// LeaseRequest says which tasks a worker wants.
type LeaseRequest struct {
	Queue    string
	Executor Executor
	// Types that the worker can do; nil: all of the queue.
	Types  []string
	Worker string
	Limit  int
	Wait   time.Duration
	// Shares bound how many jobs of each namespace are given, of the executor Kubernetes only, whose namespaces take turns. nil: no bound.
	Shares []Share
}

// Share is a number of places that the namespaces share. Each turn is that of the namespace that has the fewest of the first Share; a
// namespace alone may have all. Where all are taken, a namespace gets more while it has less than an even share: those who were
// there before it keep what they have, and get no more.
type Share struct {
	Places int `json:"places"`
	// Held is how many of the places each namespace has.
	Held map[string]int `json:"held"`
}

// Failure of a try.
type Failure struct {
	Message   string
	Retryable bool
}

// QueueStats are the figures of a queue.
type QueueStats struct {
	Name string
	// Depth is the number of jobs that wait, Processing of those that run.
	Depth, Processing int
	// PoolDepth is how many of Depth wait for pooled workers, PoolProcessing how many of Processing those have.
	PoolDepth, PoolProcessing int
	// OldestQueuedAt of the jobs that wait; zero: none does.
	OldestQueuedAt time.Time
	// Of the last hour.
	Processed1h                   int
	AverageWait, AverageExecution time.Duration
}

// Metrics of the last 24 hours.
type Metrics struct {
	Submitted, Completed, Failed  int
	DispatchP50, DispatchP99      time.Duration
	ExecutionP50, ExecutionP99    time.Duration
	SubmittedPerSecond, PerSecond float64 // over the last minute
}

// AuditEntry says who did what when, and whether it was allowed.
type AuditEntry struct {
	Time      time.Time
	User      string
	Action    string // for example jobs.create
	Namespace string
	JobID     string
	RequestID string
	Status    int // of the HTTP answer
	Message   string
}
