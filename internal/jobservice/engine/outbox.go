package engine

import (
	"context"
	"sync"
	"time"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/redisqueue"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/sqlstore"
)

// delivered are rows of the outbox that have done their work. They are deleted with the next transaction, or soon when there is none. They
// are all of one epoch: those of another stay, and are brought to Redis again.
type delivered struct {
	mutex sync.Mutex
	rows  sqlstore.Delivered
}

func (d *delivered) add(rows sqlstore.Delivered) {
	if len(rows.IDs) == 0 {
		return
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if d.rows.Epoch != rows.Epoch {
		d.rows = sqlstore.Delivered{Epoch: rows.Epoch}
	}
	d.rows.IDs = append(d.rows.IDs, rows.IDs...)
}

func (d *delivered) take() sqlstore.Delivered {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	rows := d.rows
	d.rows.IDs = nil
	return rows
}

func (s *Store) forgetDelivered(ctx context.Context) bool {
	if rows := s.delivered.take(); len(rows.IDs) > 0 {
		if _, err := s.db.Deliver(ctx, rows); err != nil {
			s.delivered.add(rows)
		}
	}
	return false
}

// deliverLeft brings to Redis what was not brought: the service crashed in between, or Redis was away.
func (s *Store) deliverLeft(ctx context.Context) bool {
	if s.queue.Epoch() == "" {
		return false
	}
	left, err := s.db.Undelivered(ctx, time.Now().Add(-s.options.OutboxAge), 50)
	if err != nil || len(left) == 0 {
		return false
	}
	var ids, boxes []string
	for _, box := range left {
		ids, boxes = append(ids, box.Jobs...), append(boxes, box.ID)
	}
	rows, err := s.db.Get(ctx, ids)
	if err != nil {
		return false
	}
	var waiting []redisqueue.Entry
	for _, row := range rows {
		if !row.Status.Ended() && !row.Leased() {
			waiting = append(waiting, redisqueue.EntryOf(&row.Job))
		}
	}
	_, epoch, err := s.queue.Enqueue(ctx, waiting)
	if err != nil {
		s.redisFailed(err)
		return false
	}
	s.leases.wakeFor(waiting)
	n, err := s.db.Deliver(ctx, sqlstore.Delivered{Epoch: epoch, IDs: boxes})
	return err == nil && n > 0 && len(left) == 50
}
