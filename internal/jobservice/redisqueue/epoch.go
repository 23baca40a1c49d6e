package redisqueue

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// Attach uses the data of an epoch that are there, and says whether they are.
func (q *Queue) Attach(ctx context.Context, epoch string) (bool, error) {
	if epoch == "" {
		return false, nil
	}
	s := &state{epoch: epoch, scripts: scriptsOf(epoch)}
	var shas []string
	for _, name := range guarded {
		shas = append(shas, s.scripts[name].Hash())
	}
	primary, err := q.primary(ctx)
	if err != nil {
		return false, err
	}
	known, err := primary.ScriptExists(ctx, shas...).Result()
	if err != nil {
		return false, unavailable(err)
	}
	if slices.Contains(known, false) {
		return false, nil
	}
	// The scripts look for the epoch's key themselves.
	q.state.Store(s)
	if _, err := q.Heartbeat(ctx, Held{ID: "none"}, time.Second); err != nil {
		q.Detach()
		return false, nil
	}
	return true, nil
}

// Loading replaces the data by those of a new epoch. One may load at a time; when two try, the one that began first fails.
type Loading struct {
	*state

	q    *Queue
	life string
}

// Begin forgets all data.
func (q *Queue) Begin(ctx context.Context, epoch string) (*Loading, error) {
	l := &Loading{q: q, state: &state{epoch: epoch, scripts: scriptsOf(epoch)}}
	var err error
	if l.life, err = q.life(ctx); err != nil {
		return nil, err
	}
	if err := l.eval(ctx, "begin"); err != nil {
		return nil, err
	}
	return l, nil
}

func (l *Loading) eval(ctx context.Context, name string, arguments ...any) error {
	primary, err := l.q.primary(ctx)
	if err != nil {
		return err
	}
	return unavailable(l.scripts[name].Eval(ctx, primary, keys, arguments...).Err())
}

// Add adds jobs. Leased ones get a whole visibility.
func (l *Loading) Add(ctx context.Context, entries []Entry, visibility time.Duration) error {
	for chunk := range slices.Chunk(entries, 500) {
		arguments := make([]any, 0, 7*len(chunk))
		for _, e := range chunk {
			to, when := "wait", "0"
			switch {
			case e.Leased:
				to, when = "lease", strconv.FormatInt(visibility.Milliseconds(), 10)
			case !e.Due.IsZero():
				to, when = "delay", strconv.FormatInt(e.Due.UnixMilli(), 10)
			}
			arguments = append(arguments, e.ID, e.Fence, e.score(), e.kind(), e.line(), to, when)
		}
		if err := l.eval(ctx, "load", arguments...); err != nil {
			return err
		}
	}
	return nil
}

// Commit says that all were added, and uses them.
func (l *Loading) Commit(ctx context.Context) error {
	primary, err := l.q.primary(ctx)
	if err != nil {
		return err
	}
	for _, name := range guarded {
		if err := l.scripts[name].Load(ctx, primary).Err(); err != nil {
			return unavailable(err)
		}
	}
	// A server that restarted since Begin, or a replica that took its place, may lack a part of the data. One that does so after this lacks
	// the scripts.
	life, err := l.q.life(ctx)
	if err != nil {
		return err
	}
	if life != l.life {
		return fmt.Errorf("redis restarted during the load, or another server became its primary: %w", ErrStale)
	}
	if err := l.eval(ctx, "commit"); err != nil {
		return err
	}
	l.q.state.Store(l.state)
	return nil
}
