package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

// committer gathers what comes while the last transaction runs, and hands it on together: group commit. Nothing waits when it is idle.
type committer[T interface{ claim() bool }] struct {
	mutex   sync.Mutex
	waiting []T
	signal  chan struct{}
	// weight of one, and how much of it goes into one transaction.
	weight func(T) int
	limit  int
}

func newCommitter[T interface{ claim() bool }](limit int, weight func(T) int) *committer[T] {
	return &committer[T]{signal: make(chan struct{}, 1), weight: weight, limit: limit}
}

func (c *committer[T]) add(one T) {
	c.mutex.Lock()
	c.waiting = append(c.waiting, one)
	c.mutex.Unlock()
	c.notify()
}

func (c *committer[T]) notify() {
	select {
	case c.signal <- struct{}{}:
	default:
	}
}

// run hands on, until the context ends, those that can still be claimed.
func (c *committer[T]) run(ctx context.Context, flush func([]T)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.signal:
		}
		batch, more := c.take()
		if more {
			c.notify()
		}
		if batch = slices.DeleteFunc(batch, func(one T) bool { return !one.claim() }); len(batch) > 0 {
			flush(batch)
		}
	}
}

func (c *committer[T]) take() (batch []T, more bool) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	n, sum := 0, 0
	for n < len(c.waiting) {
		sum += c.weight(c.waiting[n])
		if n > 0 && sum > c.limit {
			break
		}
		n++
	}
	batch = c.waiting[:n:n]
	c.waiting = c.waiting[n:]
	if len(c.waiting) == 0 {
		c.waiting = nil
	}
	return batch, len(c.waiting) > 0
}

var tracer = otel.Tracer("github.com/dcnlab/spot-training-operator/internal/jobservice/engine")

// ticket of a caller who waits for a commit.
type ticket struct {
	// operation names the span of the wait.
	operation string
	// waiting ends when the caller waits no more, by leave at the latest.
	waiting context.Context
	leave   context.CancelFunc
	// since is when the wait began, begun when the transaction did.
	since, begun time.Time
	done         chan struct{}
	err          error
}

func (s *Store) newTicket(ctx context.Context, operation string) ticket {
	t := ticket{operation: operation, since: time.Now(), done: make(chan struct{})}
	t.waiting, t.leave = context.WithTimeout(ctx, s.options.OperationTimeout)
	return t
}

// claim says whether the caller still waits; from then on what was asked for is tried.
func (t *ticket) claim() bool {
	t.begun = time.Now()
	return t.waiting.Err() == nil
}

// refuse answers those whose transaction failed. When one of them may have spoiled it for all, each is tried alone.
func refuse[T interface{ settle(error) }](taken []T, err error, flush func([]T)) {
	for _, one := range taken {
		if len(taken) == 1 || errors.Is(err, jobs.ErrUnavailable) {
			one.settle(err)
			continue
		}
		flush([]T{one})
	}
}

func (t *ticket) settle(err error) {
	t.err = err
	close(t.done)
}

// wait for the end. When it takes too long, what was asked for may have been done or not.
func (t *ticket) wait() (err error) {
	defer t.leave()
	span := startSpan(t.waiting, t.operation)
	defer func() { endSpan(span, err) }()
	select {
	case <-t.done:
		span.AddEvent("transaction begins", trace.WithTimestamp(t.begun))
		return t.err
	case <-t.waiting.Done():
		return fmt.Errorf("%w: no answer of the database in %s: %w", jobs.ErrUnavailable, time.Since(t.since), t.waiting.Err())
	}
}

// startSpan in the trace of the caller; what runs in the background is in none.
func startSpan(ctx context.Context, operation string, attributes ...attribute.KeyValue) trace.Span {
	span := trace.SpanFromContext(ctx)
	if span.IsRecording() {
		_, span = tracer.Start(ctx, "store "+operation, trace.WithAttributes(attributes...))
	}
	return span
}

func endSpan(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

// persist tries a transaction until the database answers or the time is over. do must do no harm when it is done twice.
func persist(ctx context.Context, since time.Time, timeout time.Duration, do func(ctx context.Context, again bool) error) error {
	pause := 20 * time.Millisecond
	for again := false; ; again = true {
		try, cancel := context.WithTimeout(ctx, min(timeout, 3*time.Second))
		err := do(try, again)
		cancel()
		if err == nil || !errors.Is(err, jobs.ErrUnavailable) || ctx.Err() != nil || time.Since(since) > timeout {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, 500*time.Millisecond)
	}
}
