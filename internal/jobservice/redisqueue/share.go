package redisqueue

import (
	"context"
	"encoding/json"
	"time"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

// unbounded places: no queue has as many jobs.
const unbounded = 1 << 40

// shareRequest is what the script of LeaseInTurns reads. No list and no object of it may be null, which is neither to Lua.
type shareRequest struct {
	Queue      string       `json:"queue"`
	Types      []string     `json:"types"`
	Limit      int          `json:"limit"`
	Visibility int64        `json:"visibility"`
	Shares     []jobs.Share `json:"shares"`
}

// LeaseInTurns takes at most limit jobs for Kubernetes that wait, as many of each namespace as the shares admit; nil: any number. types:
// nil for all. It returns the epoch that they were taken in.
func (q *Queue) LeaseInTurns(
	ctx context.Context, queue string, types []string, limit int, visibility time.Duration, shares []jobs.Share,
) (taken []Held, over time.Time, epoch string, err error) {
	request := shareRequest{Queue: queue, Types: append([]string{}, types...), Limit: limit, Visibility: visibility.Milliseconds()}
	if len(shares) == 0 {
		shares = []jobs.Share{{Places: unbounded}}
	}
	for _, share := range shares {
		if share.Held == nil {
			share.Held = map[string]int{}
		}
		request.Shares = append(request.Shares, share)
	}
	text, err := json.Marshal(request)
	if err != nil {
		return nil, time.Time{}, "", err
	}
	return q.take(ctx, "share", text)
}
