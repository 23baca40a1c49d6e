package jobservice

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/engine"
)

// storeOptions are the flags about how jobs are kept and leased.
type storeOptions struct {
	database, replica, redis secretFlag
	// keepInDataDir says that jobs may be accepted where they are kept in the data directory.
	keepInDataDir bool
	engine.Options
}

// keepVariable is the environment's --keep-jobs-in-data-dir, for installations whose arguments cannot be changed.
const keepVariable = "KEEP_JOBS_IN_DATA_DIR"

func (o *storeOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.DataDir, "data-dir", "job-service-data",
		"folder for what the service keeps itself: the jobs without --database-url, the secret of a trial")
	keep, _ := strconv.ParseBool(os.Getenv(keepVariable))
	flags.BoolVar(&o.keepInDataDir, "keep-jobs-in-data-dir", keep,
		"accept jobs without --database-url in a pod: set it where a volume that outlives the pod is mounted at --data-dir, or where jobs may be lost with the "+
			"pod (environment: "+keepVariable+"; always true in a trial and outside of pods)")
	o.database.add(flags, "database-url", "DATABASE_URL",
		"URL of the PostgreSQL database, postgres://... (default: SQLite in --data-dir, for one replica)")
	o.replica.add(flags, "database-replica-url", "DATABASE_REPLICA_URL",
		"URL of a read replica of the PostgreSQL database, postgres://..., which answers lists and figures (default: the database does)")
	flags.DurationVar(&o.ReplicaMaxLag, "database-replica-max-lag", 10*time.Second,
		"how old the answers of --database-replica-url may be, at least 1s; while it lags more or does not answer, the database is asked")
	o.redis.add(flags, "redis-url", "REDIS_URL",
		"URL of Redis, redis://... or rediss://..., with +sentinel or +cluster before :// for these, together with --database-url (default: a queue in this "+
			"process, for one replica)")
	flags.DurationVar(&o.Visibility, "visibility-timeout", 30*time.Second,
		"how long a worker has a task without a heartbeat before it goes to another, at least 1s")
	flags.DurationVar(&o.RetryDelay, "retry-backoff", 10*time.Second, "delay before the first retry of a failed task; it grows by the job's multiplier")
	flags.DurationVar(&o.OperationTimeout, "operation-timeout", 5*time.Second,
		"how long the database and Redis may take before a request is answered with 503")
	flags.DurationVar(&o.Retention, "retention", 30*24*time.Hour, "how long jobs are kept after their end, at least: PostgreSQL deletes them by the month, where this is 30 days (720h) or more; 0: forever")
	flags.DurationVar(&o.AuditRetention, "audit-retention", 365*24*time.Hour, "how long it is kept who did what; 0: forever")
}

func (o *storeOptions) validate() error {
	switch {
	case o.DataDir == "":
		return errors.New("--data-dir: is empty: name a folder")
	case o.database.given() != o.redis.given():
		return errors.New("--database-url, --redis-url: one is set without the other: set both, or none for a service that stands alone")
	case o.replica.given() && !o.database.given():
		return errors.New("--database-replica-url: is set without --database-url: set that to the primary")
	case o.ReplicaMaxLag < time.Second:
		return fmt.Errorf("--database-replica-max-lag: %s is less than 1s", o.ReplicaMaxLag)
	case o.Visibility < time.Second:
		return fmt.Errorf("--visibility-timeout: %s is less than 1s", o.Visibility)
	case o.RetryDelay <= 0:
		return fmt.Errorf("--retry-backoff: %s is not above 0", o.RetryDelay)
	case o.OperationTimeout <= 0:
		return fmt.Errorf("--operation-timeout: %s is not above 0", o.OperationTimeout)
	case o.Retention < 0 || o.AuditRetention < 0:
		return fmt.Errorf("--retention, --audit-retention: %s and %s: choose 0, forever, or more", o.Retention, o.AuditRetention)
	}
	return nil
}

// refusal says why no jobs are accepted: what is acknowledged must not be lost with the pod. Empty: jobs are accepted.
func (o *storeOptions) refusal() string {
	if o.keepInDataDir || o.database.given() {
		return ""
	}
	return fmt.Sprintf("the service accepts no jobs, because it could lose them with its pod: set DATABASE_URL and REDIS_URL, or mount a volume that "+
		"outlives the pod at %s and set %s=true", o.DataDir, keepVariable)
}

// open the store.
func (o *storeOptions) open(ctx context.Context, log logr.Logger, observer engine.Observer) (*engine.Store, error) {
	options := o.Options
	options.Logger, options.Observer = log, observer
	var errs [3]error
	options.DatabaseURL, errs[0] = o.database.read()
	options.RedisURL, errs[1] = o.redis.read()
	options.ReplicaURL, errs[2] = o.replica.read()
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	if options.DatabaseURL == "" {
		if err := os.MkdirAll(o.DataDir, 0o700); err != nil {
			return nil, fmt.Errorf("--data-dir: %w", err)
		}
	}
	store, err := engine.New(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("open the store of jobs: %w", err)
	}
	return store, nil
}
