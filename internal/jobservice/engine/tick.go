package engine

import (
	"context"
	"time"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/redisqueue"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/sqlstore"
)

const (
	tickLimit = 256
	// retakeAfter is when another replica looks after leases that one took back and did not settle.
	retakeAfter = 10 * time.Second
)

// tick lets jobs wait whose delay is over, and takes jobs back whose lease is over.
func (s *Store) tick(ctx context.Context) bool {
	if s.queue.Epoch() == "" {
		return false
	}
	held, epoch, err := s.queue.Tick(ctx, tickLimit, retakeAfter)
	if err != nil {
		s.redisFailed(err)
		return false
	}
	if len(held) == 0 {
		return false
	}
	if err := s.takeBack(ctx, held, epoch); err != nil {
		// Redis names them again after a while.
		s.options.Logger.Info("Cannot release expired leases yet", "reason", err.Error())
		return false
	}
	return len(held) >= tickLimit
}

// takeBack settles leases that Redis has taken back. The epoch must be that in which it did so: in a new one the leases were renewed.
func (s *Store) takeBack(ctx context.Context, held []redisqueue.Held, epoch string) error {
	var (
		now      = moment()
		box      = sqlstore.Outbox{ID: newID()}
		waiting  []*sqlstore.Row
		changed  []*sqlstore.Row
		ended    []redisqueue.Held
		released []redisqueue.Released
	)
	change := sqlstore.Change{Epoch: epoch}
	for _, h := range held {
		change.IDs = append(change.IDs, h.ID)
	}
	change.Decide = func(rows map[string]*sqlstore.Row) ([]*sqlstore.Row, sqlstore.Outbox) {
		for _, h := range held {
			row := rows[h.ID]
			switch {
			case row == nil || row.Status.Ended():
				ended = append(ended, h)
			case row.Leased() && row.Fence == h.Fence:
				changed = append(changed, row)
				if expire(row, now) == remove {
					ended = append(ended, h)
					continue
				}
				waiting = append(waiting, row)
				box.Jobs = append(box.Jobs, row.ID)
			case row.Leased():
				released = append(released, redisqueue.Released{Held: h, Known: row.Fence, Lease: s.options.Visibility + time.Second})
			default: // SQL never heard of the lease
				released = append(released, redisqueue.Released{Held: h, Known: row.Fence})
			}
		}
		return changed, box
	}
	if err := s.db.Change(ctx, change); err != nil {
		return err
	}
	for _, row := range changed {
		s.figures.changed(row)
	}
	s.forget(ended)
	if err := s.queue.Release(ctx, released); err != nil {
		s.redisFailed(err)
		return err
	}
	if len(waiting) == 0 {
		return nil
	}
	_, err := s.bring(waiting, box.ID)
	return err
}
