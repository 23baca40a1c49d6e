// Package engine is the Store of the job service: SQL keeps the jobs and is the truth about them, Redis has which of them wait and which
// are leased.
//
// A job is acknowledged after SQL has it; a worker gets a lease after SQL has it; how a job ends is one guarded change in SQL. Redis
// may lose everything at any time: what it has too much of is found out when SQL refuses it, what it lacks comes by the outbox (rows that
// are written with the change that made them necessary) or by loading all from SQL under a new epoch.
package engine

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/redisqueue"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/sqlstore"
)

// Store keeps jobs and hands them to workers.
type Store struct {
	options Options
	db      sqlstore.Database
	queue   *redisqueue.Queue

	submits *committer[*submission]
	grants  *committer[*allotment]
	changes *committer[*operation]
	audits  *committer[*auditing]

	leases    *dispatcher
	delivered *delivered
	figures   *figures
	// deliveries bounds how many batches are on their way to Redis.
	deliveries chan struct{}
	// lists bounds how many lists are asked of the database at once.
	lists chan struct{}
	// lost asks for Redis to be looked after; detached says that it was told that Redis cannot be used.
	lost     chan struct{}
	detached atomic.Bool

	// metrics are made at most once in a second.
	metrics struct {
		sync.Mutex
		value jobs.Metrics
		at    time.Time
	}

	ctx    context.Context
	stop   context.CancelFunc
	ending sync.WaitGroup
}

var _ jobs.Store = (*Store)(nil)

// New opens the database, brings its schema up to date, and starts what runs in the background until Close. The database must answer;
// Redis need not yet.
func New(ctx context.Context, options Options) (*Store, error) {
	if err := options.complete(); err != nil {
		return nil, err
	}
	var (
		db  sqlstore.Database
		q   *redisqueue.Queue
		err error
	)
	if options.DatabaseURL != "" {
		db, err = sqlstore.OpenPostgres(ctx, options.DatabaseURL, sqlstore.Replica{
			URL: options.ReplicaURL, MaxLag: options.ReplicaMaxLag, Logger: options.Logger,
		})
	} else {
		db, err = sqlstore.OpenSQLite(ctx, options.DataDir)
	}
	if err != nil {
		return nil, err
	}
	if options.RedisURL != "" {
		q, err = redisqueue.Open(options.RedisURL)
	} else {
		q, err = redisqueue.OpenEmbedded()
	}
	if err != nil {
		db.Close()
		return nil, err
	}
	return start(ctx, options, db, q), nil
}

// start runs a Store from servers that are open; Close closes them.
func start(ctx context.Context, options Options, db sqlstore.Database, q *redisqueue.Queue) *Store {
	s := &Store{
		options: options, db: db, queue: q,
		submits:    newCommitter(4000, func(o *submission) int { return len(o.rows) }),
		grants:     newCommitter(1000, func(o *allotment) int { return len(o.held) }),
		changes:    newCommitter(1000, func(*operation) int { return 1 }),
		audits:     newCommitter(2000, func(*auditing) int { return 1 }),
		delivered:  &delivered{},
		figures:    newFigures(options.Observer),
		deliveries: make(chan struct{}, 4),
		lists:      make(chan struct{}, listsAtOnce),
		lost:       make(chan struct{}, 1),
	}
	s.detached.Store(true)
	s.leases = newDispatcher(s)
	s.ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.background()
	return s
}

func (s *Store) background() {
	start := s.ending.Go
	start(func() { s.submits.run(s.ctx, s.flushSubmissions) })
	start(func() { s.grants.run(s.ctx, s.flushGrants) })
	start(func() { s.changes.run(s.ctx, s.flushChanges) })
	start(func() { s.audits.run(s.ctx, s.flushAudit) })
	start(func() { s.queue.Wakes(s.ctx, s.leases.wake) })
	start(s.keepAttached)
	start(func() { s.every(s.options.TickInterval, s.tick) })
	start(func() { s.every(time.Second, s.deliverLeft) })
	start(func() { s.every(200*time.Millisecond, s.forgetDelivered) })
	start(func() { s.every(time.Second, s.flushFigures) })
	start(func() { s.every(time.Second, s.leases.wakeAll) }) // should a message of Redis get lost
	start(func() { s.every(5*time.Second, s.tidy) })
	start(func() { wait.NonSlidingUntilWithContext(s.ctx, s.keepMonths, monthsInterval) })
	s.lose()
}

// every calls do again and again; it says whether there is more to do at once.
func (s *Store) every(interval time.Duration, do func(context.Context) (more bool)) {
	wait.NonSlidingUntilWithContext(s.ctx, func(ctx context.Context) {
		for more := true; more && ctx.Err() == nil; {
			once, cancel := context.WithTimeout(ctx, s.options.OperationTimeout)
			more = do(once)
			cancel()
		}
	}, interval)
}

// Close ends what runs in the background, and the connections. Callers who still wait get ErrUnavailable.
func (s *Store) Close() {
	s.stop()
	s.ending.Wait()
	final, cancel := context.WithTimeout(context.Background(), s.options.OperationTimeout)
	defer cancel()
	s.flushFigures(final)
	s.forgetDelivered(final)
	s.queue.Close()
	s.db.Close()
}

// Check says of each server why it cannot be used.
func (s *Store) Check(ctx context.Context) map[string]error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	check := map[string]error{"database": s.db.Ping(ctx), "redis": s.queue.Ping(ctx)}
	if check["redis"] == nil && s.queue.Epoch() == "" {
		check["redis"] = fmt.Errorf("the queue is being loaded: %w", jobs.ErrUnavailable)
	}
	return check
}
