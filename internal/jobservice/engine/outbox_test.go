package engine

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/redisqueue"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/sqlstore"
)

// replica of a service: the database is that of all, and outlives it.
type replica struct {
	sqlstore.Database
	// unaware replicas do not learn of a new epoch.
	unaware atomic.Bool
	// open is called before the jobs of a status are read.
	open func(status jobs.Status)
}

func (r *replica) Close() {}

func (r *replica) Epoch(ctx context.Context) (string, error) {
	if r.unaware.Load() {
		return "", jobs.ErrUnavailable
	}
	return r.Database.Epoch(ctx)
}

func (r *replica) Open(ctx context.Context, status jobs.Status, after string, limit int) ([]*sqlstore.Row, error) {
	if r.open != nil {
		r.open(status)
	}
	return r.Database.Open(ctx, status, after, limit)
}

// When the service moves to another Redis, the last replica at the old one goes on for a moment.
func TestJobsThatOnlyTheOldRedisLearnedOfAreBroughtToTheNewOne(t *testing.T) {
	options := Options{DataDir: t.TempDir(), OutboxAge: 100 * time.Millisecond}
	require.NoError(t, options.complete())
	db, err := sqlstore.OpenSQLite(t.Context(), options.DataDir)
	require.NoError(t, err)
	defer db.Close()
	begin := func(r *replica) *Store {
		q, err := redisqueue.OpenEmbedded() // each has a Redis of its own
		require.NoError(t, err)
		return start(t.Context(), options, r, q)
	}
	attached := func(s *Store) func() bool { return func() bool { return s.queue.Epoch() != "" } }

	old := &replica{Database: db}
	a := begin(old)
	require.Eventually(t, attached(a), time.Minute, 5*time.Millisecond)
	old.unaware.Store(true)
	scanned, goOn := make(chan struct{}), make(chan struct{})
	b := begin(&replica{Database: db, open: func(status jobs.Status) {
		if status == jobs.Scheduled { // those that wait have been read
			close(scanned)
			<-goOn
		}
	}})
	defer b.Close()
	<-scanned
	job := pooled()
	_, err = a.Submit(t.Context(), []*jobs.Job{job})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		a.delivered.mutex.Lock()
		defer a.delivered.mutex.Unlock()
		return len(a.delivered.rows.IDs) == 0
	}, time.Minute, 5*time.Millisecond)
	close(goOn)
	require.Eventually(t, attached(b), time.Minute, 5*time.Millisecond)
	a.Close()

	leases, err := b.Lease(t.Context(), jobs.LeaseRequest{Queue: "inference", Executor: jobs.Pool, Worker: "w", Wait: 5 * time.Second})
	require.NoError(t, err)
	require.Len(t, leases, 1)
	require.Equal(t, job.ID, leases[0].Job.ID)
}
