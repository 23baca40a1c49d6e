// Package redisqueue keeps in Redis which jobs wait, which are leased, and until when. It is a fast copy of what SQL knows: what it has lost
// is loaded from there again.
//
// The data belong to an epoch. A Redis that restarted, with its data, with older data or without, or another one that
// replaced it, as a replica does that is promoted, does not know the scripts of the epoch, since their text has the epoch's name and scripts
// are neither kept nor passed on to replicas; and emptied data do not have the epoch's key. Either way nothing is done, and ErrStale says that the data must be loaded again.
package redisqueue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

// ErrStale says that the data in Redis are not those of the epoch, and nothing was done.
var ErrStale = errors.New("the data in Redis are of another epoch")

// Entry is what Redis must know of a job.
type Entry struct {
	*jobs.Job
	// Due is when it may run; zero: now.
	Due time.Time
	// Leased jobs do not wait; for Load only.
	Leased bool
}

// EntryOf a job.
func EntryOf(job *jobs.Job) Entry {
	e := Entry{Job: job}
	if job.Status == jobs.Retrying && job.NextRetryAt.After(time.Now()) {
		e.Due = job.NextRetryAt
	}
	return e
}

// score orders by priority, the highest first, then by age. Below 2^49, so that Redis' numbers hold it exactly.
func (e Entry) score() string {
	return strconv.FormatInt(int64(100-e.Priority)<<42+e.CreatedAt.UnixMilli(), 10)
}

func (e Entry) kind() string { return string(e.Executor) + "/" + e.Type }

// line that the job waits in: the queue, or the part of it that is its namespace's. The names of namespaces have no slash.
func (e Entry) line() string {
	if e.Executor == jobs.Kubernetes {
		return e.Queue + "/" + e.Namespace
	}
	return e.Queue
}

// Held is a lease, by the ID of its job.
type Held struct {
	ID    string
	Fence int64
}

// Queue is the queue in Redis: one server, the primary that Sentinel names, or a Redis Cluster. Safe for concurrent use.
type Queue struct {
	server
	state atomic.Pointer[state]
}

// state is the epoch that is used, with its scripts.
type state struct {
	epoch   string
	scripts map[string]*redis.Script
}

// Epoch that is used; empty: none, nothing can be done.
func (q *Queue) Epoch() string {
	if s := q.state.Load(); s != nil {
		return s.epoch
	}
	return ""
}

// Detach stops the use of the epoch.
func (q *Queue) Detach() { q.state.Store(nil) }

// Enqueue lets jobs wait, and returns the place of each in its queue, 0 for those that do not wait; of jobs for Kubernetes, whose
// namespaces take turns, the place among those of its namespace. Saying it again changes nothing. It returns also the epoch that it happened
// in: only while that one holds are they known to wait.
func (q *Queue) Enqueue(ctx context.Context, entries []Entry) (places []int, epoch string, err error) {
	s := q.state.Load()
	if s == nil {
		return nil, "", ErrStale
	}
	places = make([]int, 0, len(entries))
	for chunk := range slices.Chunk(entries, 250) { // so that a script does not hold up others for long
		arguments := make([]any, 0, 6*len(chunk))
		for _, e := range chunk {
			due := "0"
			if !e.Due.IsZero() {
				due = strconv.FormatInt(e.Due.UnixMilli(), 10)
			}
			arguments = append(arguments, e.ID, e.Fence, e.score(), e.kind(), e.line(), due)
		}
		answer, err := q.runOf(ctx, s, "enqueue", arguments...).Int64Slice()
		if err != nil {
			return nil, "", err
		}
		for _, place := range answer {
			places = append(places, int(place))
		}
	}
	return places, s.epoch, nil
}

// Lease takes at most limit jobs that wait, the first of the queue first. LeaseInTurns takes those for Kubernetes. types: nil for all. It returns the epoch that they were taken in.
func (q *Queue) Lease(
	ctx context.Context, queue string, executor jobs.Executor, types []string, limit int, visibility time.Duration,
) (taken []Held, over time.Time, epoch string, err error) {
	arguments := []any{limit, visibility.Milliseconds(), string(executor), queue}
	for _, t := range types {
		arguments = append(arguments, t)
	}
	return q.take(ctx, "lease", arguments...)
}

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

func (q *Queue) take(ctx context.Context, script string, arguments ...any) (taken []Held, over time.Time, epoch string, err error) {
	s := q.state.Load()
	answer, err := q.runOf(ctx, s, script, arguments...).StringSlice()
	if err != nil {
		return nil, time.Time{}, "", err
	}
	taken, err = held(answer[1:])
	return taken, moment(answer[0]), s.epoch, err
}

func held(answer []string) ([]Held, error) {
	var all []Held
	for i := 0; i+1 < len(answer); i += 2 {
		fence, err := strconv.ParseInt(answer[i+1], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("the fence of %s: %w", answer[i], err)
		}
		all = append(all, Held{ID: answer[i], Fence: fence})
	}
	return all, nil
}

func moment(milliseconds string) time.Time {
	n, _ := strconv.ParseInt(milliseconds, 10, 64)
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMilli(n)
}

// Heartbeat keeps a lease, and returns when it is over now; zero: there is none.
func (q *Queue) Heartbeat(ctx context.Context, lease Held, visibility time.Duration) (time.Time, error) {
	answer, err := q.run(ctx, "heartbeat", lease.ID, lease.Fence, visibility.Milliseconds()).Text()
	return moment(answer), err
}

// Adopt takes up a lease that SQL knows and Redis does not, and returns when it is over; zero: Redis knows better. The caller must
// look afterwards whether SQL still has the lease.
func (q *Queue) Adopt(ctx context.Context, e Entry, visibility time.Duration) (time.Time, error) {
	answer, err := q.run(ctx, "adopt", e.ID, e.Fence, visibility.Milliseconds(), e.score(), e.kind(), e.line()).Text()
	return moment(answer), err
}

// Remove forgets jobs that have ended, unless it knows them under a newer fence.
func (q *Queue) Remove(ctx context.Context, ended []Held) error {
	for chunk := range slices.Chunk(ended, 500) {
		arguments := make([]any, 0, 2*len(chunk))
		for _, h := range chunk {
			arguments = append(arguments, h.ID, h.Fence)
		}
		if err := q.run(ctx, "remove", arguments...).Err(); err != nil {
			return err
		}
	}
	return nil
}

// Released says how SQL knows a job whose lease Tick took back.
type Released struct {
	Held
	// Fence that SQL knows.
	Known int64
	// Lease is how long the lease that SQL has under that fence still gets; 0: it has none, the job waits.
	Lease time.Duration
}

// Release corrects leases that Tick took back when SQL has no such lease, or another.
func (q *Queue) Release(ctx context.Context, all []Released) error {
	if len(all) == 0 {
		return nil
	}
	var arguments []any
	for _, r := range all {
		arguments = append(arguments, r.ID, r.Fence, r.Known, r.Lease.Milliseconds())
	}
	return q.run(ctx, "release", arguments...).Err()
}

// Tick lets those wait whose delay is over, and takes back leases that are over. It returns these until they were settled by Enqueue,
// Remove or Release, each time after again. It returns also the epoch that it happened in.
func (q *Queue) Tick(ctx context.Context, limit int, again time.Duration) ([]Held, string, error) {
	s := q.state.Load()
	answer, err := q.runOf(ctx, s, "tick", limit, again.Milliseconds()).StringSlice()
	if err != nil {
		return nil, "", err
	}
	all, err := held(answer)
	return all, s.epoch, err
}

// Wakes reports queues that got jobs, as executor and name, until the context ends.
func (q *Queue) Wakes(ctx context.Context, woken func(executor jobs.Executor, queue string)) {
	subscription := q.client.Subscribe(ctx, wakeChannel)
	defer context.AfterFunc(ctx, func() { _ = subscription.Close() })()
	for message := range subscription.Channel(redis.WithChannelSize(1000)) {
		executor, queue, _ := strings.Cut(message.Payload, "/")
		woken(jobs.Executor(executor), queue)
	}
}

func (q *Queue) run(ctx context.Context, name string, arguments ...any) *redis.Cmd {
	return q.runOf(ctx, q.state.Load(), name, arguments...)
}

// runOf runs a script of an epoch, and stops the use of one that Redis does not know.
func (q *Queue) runOf(ctx context.Context, s *state, name string, arguments ...any) *redis.Cmd {
	if s == nil {
		command := redis.NewCmd(ctx)
		command.SetErr(ErrStale)
		return command
	}
	command := redis.NewCmd(ctx)
	if primary, err := q.primary(ctx); err != nil {
		command.SetErr(err)
	} else {
		command = s.scripts[name].EvalSha(ctx, primary, keys, arguments...)
	}
	switch err := command.Err(); {
	case err == nil:
	case redis.HasErrorPrefix(err, "NOSCRIPT"), strings.Contains(err.Error(), "EPOCH"):
		q.state.CompareAndSwap(s, nil)
		command.SetErr(fmt.Errorf("%w: %w", ErrStale, err))
	default:
		command.SetErr(unavailable(err))
	}
	return command
}
