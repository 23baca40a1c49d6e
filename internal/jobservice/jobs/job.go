// Package jobs has the job of the job service, what can be asked of the store of jobs, and its errors. It is what the parts of the
// service (REST, queue, history, Kubernetes) share.
package jobs

import (
	"encoding/json"
	"time"
)

// Status of a job, as REST names it.
type Status string

// The statuses. Succeeded, failed, dead_letter and cancelled are ends; dead_letter can be requeued.
const (
	Queued     Status = "queued"
	Scheduled  Status = "scheduled" // an AIJob that was admitted
	Running    Status = "running"   // leased by a worker, or an AIJob whose pods run
	Retrying   Status = "retrying"
	Succeeded  Status = "succeeded"
	Failed     Status = "failed" // cannot succeed, is not tried again
	DeadLetter Status = "dead_letter"
	Cancelled  Status = "cancelled"
)

// Ended says whether the status is an end.
func (s Status) Ended() bool {
	return s == Succeeded || s == Failed || s == DeadLetter || s == Cancelled
}

// Executor runs jobs.
type Executor string

// The executors.
const (
	// Pool are workers that lease tasks: for jobs that name no image.
	Pool Executor = "pool"
	// Kubernetes makes an AIJob: for jobs that name an image or are gangs.
	Kubernetes Executor = "kubernetes"
)

// Job is one job with all that is known of it.
type Job struct {
	// ID is a UUID of version 7, so that IDs grow with time.
	ID        string
	Namespace string
	// Queue is the AIJobQueue; by default one of the name of the type.
	Queue    string
	Type     string // inference, training, simulation, evaluation
	Executor Executor
	// Priority 0 to 100, the highest first; among equals the oldest.
	Priority  int
	Image     string
	Config    json.RawMessage // an object
	Resources Resources
	Gang      Gang
	// Timeout of one try; 0: none.
	Timeout time.Duration
	Retry   Retry
	// Submitter is the user who sent it; SubmitterGroups are the groups that the user had then, kept for the executor Kubernetes. nil: they are
	// not known, as of jobs of version 0.3.
	Submitter       string
	SubmitterGroups []string

	Status                                      Status
	CreatedAt, QueuedAt, StartedAt, CompletedAt time.Time // zero when not yet
	NextRetryAt                                 time.Time
	RetryCount                                  int
	// WorkerID of the worker that has or had it.
	WorkerID string
	// Fence of the newest lease; grows with each.
	Fence int64
	// Result is the object that the worker gave; Error why the job failed.
	Result json.RawMessage
	Error  string
}

// Resources of each pod, as Kubernetes quantities; GPU is a number. The database has them as JSON.
type Resources struct {
	CPU    string `json:"cpu,omitempty"`
	Memory string `json:"memory,omitempty"`
	GPU    int    `json:"gpu,omitempty"`
}

// Gang of pods that start together. The database has it as JSON.
type Gang struct {
	Enabled    bool   `json:"enabled"`
	MinMembers int    `json:"minMembers,omitempty"`
	Topology   string `json:"topology,omitempty"`
}

// Retry says how often a failed job is tried again, and how the delay grows.
type Retry struct {
	MaxRetries        int
	BackoffMultiplier float64
}

// Lease gives a worker a job for a time.
type Lease struct {
	Job Job
	// Fence must come with every word on the task; an older one is refused.
	Fence int64
	// ExpiresAt is when the job goes to another worker unless a heartbeat comes before; Visibility is how long one lasts.
	ExpiresAt  time.Time
	Visibility time.Duration
}
