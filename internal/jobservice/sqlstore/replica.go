package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

// Replica answers lists and figures, which may lag behind, in place of the primary. The zero value is none.
type Replica struct {
	// URL of a standby of the same PostgreSQL.
	URL string
	// MaxLag is how old its answers may be. When they may be older, or it does not answer, the primary is asked.
	MaxLag time.Duration
	// Logger learns when it is used, and when it is not.
	Logger logr.Logger
}

const (
	// replicaTimeout leaves time to ask the primary in place of a replica that does not answer.
	replicaTimeout = time.Second
	lagInterval    = 500 * time.Millisecond
)

type replica struct {
	database
	Replica
	pool, primary *pgxpool.Pool
	// seen is a time of this machine, in nanoseconds since 1970: what was committed before it is in the replica. 0: unknown.
	seen atomic.Int64
	used atomic.Bool
	stop context.CancelFunc
	done chan struct{}
}

// openReplica need not reach the server.
func openReplica(ctx context.Context, options Replica, primary *pgxpool.Pool) (*replica, error) {
	pool, err := openPool(ctx, options.URL)
	if err != nil {
		return nil, fmt.Errorf("the URL of the read replica: %w", err)
	}
	if options.Logger.GetSink() == nil {
		options.Logger = logr.Discard()
	}
	db := stdlib.OpenDBFromPool(pool)
	r := &replica{database: database{dialect: inPostgres(pool), read: db, write: db}, Replica: options, pool: pool, primary: primary, done: make(chan struct{})}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	r.stop = stop
	go r.watch(watching)
	return r, nil
}

// watch finds out again and again what the replica has: it asks the primary where its log ends, and the replica whether it has got that far.
func (r *replica) watch(ctx context.Context) {
	defer close(r.done)
	var end string
	var at time.Time
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, replicaTimeout)
		defer cancel()
		if end == "" {
			now := time.Now()
			if r.primary.QueryRow(ctx, "SELECT pg_current_wal_lsn()::text").Scan(&end) != nil {
				return
			}
			at = now
		}
		var has bool
		err := r.pool.QueryRow(ctx, "SELECT pg_is_in_recovery() AND coalesce(pg_last_wal_replay_lsn() >= $1::text::pg_lsn, false)", end).Scan(&has)
		if err == nil && has {
			r.seen.Store(at.UnixNano())
			end = ""
		}
		r.fresh(err)
	}, lagInterval)
}

// fresh says whether the replica's answers are new enough. why is what went wrong when it was asked last, nil for nothing.
func (r *replica) fresh(why error) bool {
	lag := time.Since(time.Unix(0, r.seen.Load()))
	fresh := lag <= r.MaxLag
	switch {
	case r.used.Swap(fresh) == fresh:
	case fresh:
		r.Logger.Info("Lists and figures are read from the replica")
	case why != nil:
		r.Logger.Info("Lists and figures are read from the primary, as the replica does not answer", "reason", why.Error())
	default:
		r.Logger.Info("Lists and figures are read from the primary, as the replica lags", "lag", lag.Round(time.Millisecond).String())
	}
	return fresh
}

func (r *replica) Close() {
	r.stop()
	<-r.done
	_ = r.read.Close()
	r.pool.Close()
}

// mayLag asks the replica where there is one that is fresh, else the primary.
func (p *postgres) mayLag(ctx context.Context, ask func(context.Context, *database) error) error {
	r := p.replica
	if r == nil || !r.fresh(nil) {
		return ask(ctx, &p.database)
	}
	soon, cancel := context.WithTimeout(ctx, replicaTimeout)
	defer cancel()
	err := ask(soon, &r.database)
	if !errors.Is(err, jobs.ErrUnavailable) || ctx.Err() != nil {
		return err
	}
	r.seen.Store(0) // until it answers again
	r.fresh(err)
	return ask(ctx, &p.database)
}

func (p *postgres) List(ctx context.Context, filter jobs.Filter) (items []jobs.Job, total int, err error) {
	err = p.mayLag(ctx, func(ctx context.Context, d *database) (err error) {
		items, total, err = d.List(ctx, filter)
		return err
	})
	return items, total, err
}

func (p *postgres) Counts(ctx context.Context) (counts []Count, err error) {
	err = p.mayLag(ctx, func(ctx context.Context, d *database) (err error) {
		counts, err = d.Counts(ctx)
		return err
	})
	return counts, err
}

func (p *postgres) Oldest(ctx context.Context, queues []string) (oldest map[string]time.Time, err error) {
	err = p.mayLag(ctx, func(ctx context.Context, d *database) (err error) {
		oldest, err = d.Oldest(ctx, queues)
		return err
	})
	return oldest, err
}

func (p *postgres) Figures(ctx context.Context, width int64, since time.Time) (figures []Figure, err error) {
	err = p.mayLag(ctx, func(ctx context.Context, d *database) (err error) {
		figures, err = d.Figures(ctx, width, since)
		return err
	})
	return figures, err
}
