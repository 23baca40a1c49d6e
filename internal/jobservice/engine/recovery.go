package engine

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/redisqueue"
)

const (
	// epochCheck is how often a replica looks whether another began a new epoch.
	epochCheck = time.Second
	// epochMargin is what leases get beyond the visibility when they are loaded: until then the last replica has seen that the epoch is
	// new and keeps no lease in an old Redis that only it still reaches.
	epochMargin = 3 * epochCheck
)

// lose says that Redis does not answer, or not with the right data.
func (s *Store) lose() {
	select {
	case s.lost <- struct{}{}:
	default:
	}
}

// redisFailed notes an error of Redis; nothing more is asked of it until it was looked after.
func (s *Store) redisFailed(err error) {
	if err == nil || s.ctx.Err() != nil {
		return
	}
	if errors.Is(err, jobs.ErrUnavailable) || errors.Is(err, redisqueue.ErrStale) {
		s.detach(err)
		s.lose()
		return
	}
	s.options.Logger.Error(err, "Redis refused a command")
}

func (s *Store) detach(why error) {
	s.queue.Detach()
	if !s.detached.Swap(true) {
		s.options.Logger.Info("Redis unavailable", "reason", why.Error())
	}
}

func (s *Store) attached() {
	s.detached.Store(false)
	s.leases.wakeAll(s.ctx)
}

// keepAttached brings Redis back into use whenever it was lost.
func (s *Store) keepAttached() {
	ticker := time.NewTicker(epochCheck)
	defer ticker.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-ticker.C:
			s.checkEpoch()
		case <-s.lost:
		}
		for s.queue.Epoch() == "" && s.ctx.Err() == nil {
			if err := s.attach(); err != nil {
				s.detach(err)
				s.options.Logger.V(1).Info("Cannot reload Redis yet", "reason", err.Error())
				select {
				case <-s.ctx.Done():
				case <-time.After(100 * time.Millisecond):
				}
			}
		}
	}
}

// checkEpoch stops the use of an epoch that another replica has replaced.
func (s *Store) checkEpoch() {
	used := s.queue.Epoch()
	if used == "" {
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, epochCheck)
	defer cancel()
	if epoch, err := s.db.Epoch(ctx); err == nil && epoch != used {
		s.detach(redisqueue.ErrStale)
	}
}

// attach uses the epoch that holds when Redis has its data, else loads them; one replica does that.
func (s *Store) attach() error {
	ctx, cancel := context.WithTimeout(s.ctx, s.options.OperationTimeout)
	defer cancel()
	if err := s.queue.Ping(ctx); err != nil {
		return err
	}
	if there, err := s.attachTo(ctx); there || err != nil {
		return err
	}
	held, unlock, err := s.db.Lock(s.ctx)
	if err != nil {
		return err // another replica is at it
	}
	defer unlock()
	if there, err := s.attachTo(ctx); there || err != nil { // it was
		return err
	}
	begun := time.Now()
	n, err := s.load(held)
	if err != nil {
		return err
	}
	s.options.Logger.Info("Loaded the queue from the database", "jobs", n, "took", time.Since(begun).String())
	s.attached()
	return nil
}

func (s *Store) attachTo(ctx context.Context) (bool, error) {
	epoch, err := s.db.Epoch(ctx)
	if err != nil {
		return false, err
	}
	there, err := s.queue.Attach(ctx, epoch)
	if there {
		s.attached()
	}
	return there, err
}

// load replaces what Redis has. Changes may go on meanwhile: those that make jobs wait come by the outbox afterwards, and entries of jobs
// that have ended are found out when they are leased. Leases are neither given nor taken back, since both need the epoch.
func (s *Store) load(ctx context.Context) (int, error) {
	epoch := uuid.NewString()
	if err := s.db.SetEpoch(ctx, epoch); err != nil {
		return 0, err
	}
	loading, err := s.queue.Begin(ctx, epoch)
	if err != nil {
		return 0, err
	}
	n := 0
	// In this order, so that a job that moves on meanwhile is seen at least once. An AIJob may go from running to retrying.
	for i, status := range []jobs.Status{jobs.Queued, jobs.Retrying, jobs.Scheduled, jobs.Running, jobs.Retrying} {
		after := ""
		for {
			rows, err := s.db.Open(ctx, status, after, 5000)
			if err != nil {
				return n, err
			}
			if len(rows) == 0 {
				break
			}
			var entries []redisqueue.Entry
			for _, row := range rows {
				entry := redisqueue.EntryOf(&row.Job)
				if entry.Leased = row.Leased(); entry.Leased || i < 4 { // the others were seen before
					entries = append(entries, entry)
				}
			}
			if err := loading.Add(ctx, entries, s.options.Visibility+epochMargin); err != nil {
				return n, err
			}
			n += len(rows)
			after = rows[len(rows)-1].ID
		}
	}
	return n, loading.Commit(ctx)
}
