package engine

import (
	"cmp"
	"errors"
	"time"

	"github.com/go-logr/logr"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

// Options of a Store. Zero durations mean the default, unless they say otherwise.
type Options struct {
	// DatabaseURL of PostgreSQL (postgres://...), and RedisURL of Redis (see redisqueue.Open): both or none. Without them the
	// jobs are in a SQLite file in DataDir, and the queue within this process; such a service stands alone.
	DatabaseURL, RedisURL string
	// ReplicaURL of a standby of the database, which answers lists and figures while it lags by at most ReplicaMaxLag. Empty: the database
	// answers all. Default of ReplicaMaxLag: 10 s.
	ReplicaURL    string
	ReplicaMaxLag time.Duration
	// DataDir is the folder of the SQLite file.
	DataDir string

	// Visibility is how long a lease lasts without a heartbeat. Default: 30 s.
	Visibility time.Duration
	// RetryDelay before the first retry of a failed job; it grows by the job's multiplier to MaxRetryDelay. Defaults: 10 s, 10 min.
	RetryDelay, MaxRetryDelay time.Duration
	// OperationTimeout after which a call fails as unavailable when a server does not answer. Default: 5 s.
	OperationTimeout time.Duration
	// TickInterval is how often delays and leases that are over are looked for. Default: 100 ms.
	TickInterval time.Duration
	// OutboxAge after which what one replica did not bring to Redis is brought by another. Default: 3 s.
	OutboxAge time.Duration
	// Retention of jobs that have ended, and AuditRetention of the audit log. 0: forever.
	Retention, AuditRetention time.Duration

	Logger logr.Logger
	// Observer learns of what this Store does with jobs; nil: nothing does.
	Observer Observer
}

// Observer learns of what was done with a job, once it is durable.
type Observer interface {
	Submitted(job *jobs.Job)
	// Dispatched jobs were leased after they had waited for some time.
	Dispatched(waited time.Duration)
	Ended(job *jobs.Job)
}

// unobserved is the Observer of a Store that has none.
type unobserved struct{}

func (unobserved) Submitted(*jobs.Job)      {}
func (unobserved) Dispatched(time.Duration) {}
func (unobserved) Ended(*jobs.Job)          {}

func (o *Options) complete() error {
	if (o.DatabaseURL == "") != (o.RedisURL == "") {
		return errors.New("name both the database's URL and Redis' URL, or neither for a service that stands alone")
	}
	if o.ReplicaURL != "" && o.DatabaseURL == "" {
		return errors.New("without a database's URL, name no replica of it")
	}
	if o.DatabaseURL == "" && o.DataDir == "" {
		return errors.New("without a database's URL, name a folder for the data")
	}
	if min(o.Visibility, o.RetryDelay, o.MaxRetryDelay, o.OperationTimeout, o.TickInterval, o.OutboxAge, o.ReplicaMaxLag) < 0 {
		return errors.New("a duration is negative")
	}
	o.ReplicaMaxLag = cmp.Or(o.ReplicaMaxLag, 10*time.Second)
	o.Visibility = cmp.Or(o.Visibility, 30*time.Second)
	o.RetryDelay = cmp.Or(o.RetryDelay, 10*time.Second)
	o.MaxRetryDelay = cmp.Or(o.MaxRetryDelay, 10*time.Minute)
	o.OperationTimeout = cmp.Or(o.OperationTimeout, 5*time.Second)
	o.TickInterval = cmp.Or(o.TickInterval, 100*time.Millisecond)
	o.OutboxAge = cmp.Or(o.OutboxAge, 3*time.Second)
	o.Observer = cmp.Or(o.Observer, Observer(unobserved{}))
	if o.Logger.GetSink() == nil {
		o.Logger = logr.Discard()
	}
	return nil
}
