package engine

import (
	"context"
	"sync"
	"time"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/queue"
)

// delivered are rows of the outbox that have done their work. They are deleted with the next transaction, or soon when there is none.
type delivered struct {
	mutex sync.Mutex
	ids   []string
}

func (d *delivered) add(ids ...string) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.ids = append(d.ids, ids...)
}

func (d *delivered) take() []string {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	ids := d.ids
	d.ids = nil
	return ids
}

func (s *Store) forgetDelivered(ctx context.Context) bool {
	if ids := s.delivered.take(); len(ids) > 0 {
		if err := s.db.Deliver(ctx, ids); err != nil {
			s.delivered.add(ids...)
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
	var waiting []queue.Entry
	for _, row := range rows {
		if !row.Status.Ended() && !row.Leased() {
			waiting = append(waiting, queue.EntryOf(&row.Job))
		}
	}
	if _, err := s.queue.Enqueue(ctx, waiting); err != nil {
		s.redisFailed(err)
		return false
	}
	s.leases.wakeFor(waiting)
	return s.db.Deliver(ctx, boxes) == nil && len(left) == 50
}
