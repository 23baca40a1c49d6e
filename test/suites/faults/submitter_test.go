package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"
)

// batchSize is how many jobs a submitter sends at a time.
const batchSize = 100

// submitter sends jobs until so many are acknowledged, and cancels a few of them.
type submitter struct {
	*client
	*journal
	name string
	left *atomic.Int64
	// every is the time from batch to batch.
	every time.Duration
}

func (s *submitter) run(ctx context.Context) {
	tick := time.NewTicker(s.every)
	defer tick.Stop()
	for s.left.Add(-batchSize) >= 0 {
		for !s.submit(ctx) {
			if ctx.Err() != nil {
				return
			}
			<-tick.C
		}
		<-tick.C
	}
}

// submit sends a batch. It says whether it was acknowledged; of one that was not nothing is known, and its jobs may exist too.
func (s *submitter) submit(ctx context.Context) bool {
	batch := make([]map[string]any, batchSize)
	for i := range batch {
		batch[i] = map[string]any{
			"job_type": "simulation", "queue": queueName, "priority": rand.IntN(101), "config": map[string]any{"number": fmt.Sprint(s.name, i)},
			"retry_policy": map[string]any{"max_retries": 100, "backoff_multiplier": 1},
		}
	}
	var answer struct {
		Items []struct {
			ID string `json:"id"`
		} `json:"items"`
	}
	if err := s.call(ctx, http.MethodPost, "/jobs/batch", map[string]any{"jobs": batch}, &answer); err != nil {
		return false
	}
	events := make([]event, len(answer.Items))
	for i, item := range answer.Items {
		events[i] = event{At: time.Now(), Kind: accepted, Job: item.ID, Who: s.name}
	}
	s.write(events...)
	if id := answer.Items[rand.IntN(len(answer.Items))].ID; s.call(ctx, http.MethodDelete, "/jobs/"+id, nil, nil) == nil {
		s.write(event{At: time.Now(), Kind: cancelled, Job: id, Who: s.name})
	}
	return true
}
