package engine

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/redisqueue"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/sqlstore"
)

// burdened is a database that a test slows down.
type burdened struct {
	sqlstore.Database
	change func(ctx context.Context, change sqlstore.Change) error
	// connections are held by each call below, as those of a pool.
	connections chan struct{}
	list        func(ctx context.Context)
}

func (b *burdened) take(ctx context.Context) (func(), error) {
	if b.connections == nil {
		return func() {}, nil
	}
	select {
	case b.connections <- struct{}{}:
		return func() { <-b.connections }, nil
	case <-ctx.Done():
		return nil, jobs.ErrUnavailable
	}
}

func (b *burdened) Insert(ctx context.Context, rows []*sqlstore.Row, outbox sqlstore.Outbox, delivered sqlstore.Delivered) error {
	free, err := b.take(ctx)
	if err != nil {
		return err
	}
	defer free()
	return b.Database.Insert(ctx, rows, outbox, delivered)
}

func (b *burdened) Change(ctx context.Context, change sqlstore.Change) error {
	free, err := b.take(ctx)
	if err != nil {
		return err
	}
	defer free()
	if b.change != nil {
		if err := b.change(ctx, change); err != nil {
			return err
		}
	}
	return b.Database.Change(ctx, change)
}

func (b *burdened) List(ctx context.Context, filter jobs.Filter) ([]jobs.Job, int, error) {
	free, err := b.take(ctx)
	if err != nil {
		return nil, 0, err
	}
	defer free()
	if b.list != nil {
		b.list(ctx)
	}
	return b.Database.List(ctx, filter)
}

func startBurdened(t *testing.T, folder string, burden *burdened) *Store {
	t.Helper()
	options := Options{DataDir: folder}
	require.NoError(t, options.complete())
	var err error
	burden.Database, err = sqlstore.OpenSQLite(t.Context(), folder)
	require.NoError(t, err)
	q, err := redisqueue.OpenEmbedded()
	require.NoError(t, err)
	s := start(t.Context(), options, burden, q)
	require.Eventually(t, func() bool { return q.Epoch() != "" }, time.Minute, 5*time.Millisecond)
	return s
}

func pooled() *jobs.Job {
	return &jobs.Job{Namespace: "team-a", Queue: "inference", Type: "inference", Executor: jobs.Pool, Submitter: "ann"}
}

// A service that ends while it leases must not cost a job the only try that it has.
func TestALeaseThatNobodyGotIsGivenBackBeforeTheEnd(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	folder := t.TempDir()
	s := startBurdened(t, folder, &burdened{change: func(ctx context.Context, change sqlstore.Change) error {
		leave() // the worker goes while its lease is written
		if change.Epoch != "" {
			return nil
		}
		select {
		case <-time.After(200 * time.Millisecond):
			return nil
		case <-ctx.Done():
			return jobs.ErrUnavailable
		}
	}})
	job := pooled()
	_, err := s.Submit(t.Context(), []*jobs.Job{job})
	require.NoError(t, err)
	_, err = s.Lease(ctx, jobs.LeaseRequest{Queue: "inference", Executor: jobs.Pool, Worker: "w", Wait: 10 * time.Second})
	require.ErrorIs(t, err, context.Canceled)
	s.Close()

	s = startBurdened(t, folder, &burdened{})
	defer s.Close()
	again, err := s.Get(t.Context(), job.ID)
	require.NoError(t, err)
	require.Equal(t, jobs.Queued, again.Status)
}

// Lists that take long leave connections for what must be quick.
func TestListsDoNotKeepOthersFromTheDatabase(t *testing.T) {
	burden := &burdened{connections: make(chan struct{}, 16), list: func(ctx context.Context) { <-ctx.Done() }}
	s := startBurdened(t, t.TempDir(), burden)
	defer s.Close()
	ctx, leave := context.WithCancel(t.Context())
	ended := make(chan error, 32)
	for range 32 {
		go func() {
			_, _, err := s.List(ctx, jobs.Filter{})
			ended <- err
		}()
	}
	require.Eventually(t, func() bool { return len(burden.connections) >= listsAtOnce }, time.Minute, time.Millisecond)
	time.Sleep(50 * time.Millisecond) // let all come that would
	begun := time.Now()
	_, err := s.Submit(t.Context(), []*jobs.Job{pooled()})
	require.NoError(t, err)
	leases, err := s.Lease(t.Context(), jobs.LeaseRequest{Queue: "inference", Executor: jobs.Pool, Worker: "w", Wait: 5 * time.Second})
	require.NoError(t, err)
	require.Len(t, leases, 1)
	require.Less(t, time.Since(begun), 5*time.Second, "at once, not when the lists give up")
	leave()
	for range 32 {
		require.ErrorIs(t, <-ended, jobs.ErrUnavailable)
	}
}
