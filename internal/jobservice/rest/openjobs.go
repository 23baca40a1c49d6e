package rest

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

// DefaultMaxOpenJobs bounds what one namespace may fill the store with.
const DefaultMaxOpenJobs = 50000

const (
	// openAge is how long a count of open jobs serves. What other replicas accept meanwhile is not in it.
	openAge = 5 * time.Second
	// openAgain is when a client may ask again after a namespace had too many.
	openAgain = "30"
)

// openJobs are the jobs of each namespace that have not ended.
type openJobs struct {
	most  int // 0: any number
	count func(ctx context.Context, namespace string) (int, error)
	now   func() time.Time

	mu    sync.Mutex
	known map[string]opened
}

type opened struct {
	jobs int
	at   time.Time
}

// admit notes jobs that are about to be submitted. The error is that a namespace has too many.
func (o *openJobs) admit(ctx context.Context, batch []*jobs.Job) error {
	if o.most <= 0 {
		return nil
	}
	more := map[string]int{}
	for _, job := range batch {
		more[job.Namespace]++
	}
	for namespace, n := range more {
		if err := o.add(ctx, namespace, n); err != nil {
			return err
		}
	}
	return nil
}

func (o *openJobs) add(ctx context.Context, namespace string, n int) error {
	if o.take(namespace, n) {
		return nil
	}
	open, err := o.count(ctx, namespace)
	if err != nil {
		return err
	}
	o.mu.Lock()
	if len(o.known) >= maxClients {
		clear(o.known)
	}
	o.known[namespace] = opened{open, o.now()}
	o.mu.Unlock()
	if o.take(namespace, n) {
		return nil
	}
	return &problem{status: http.StatusTooManyRequests, header: "Retry-After", value: openAgain, message: fmt.Sprintf(
		"namespace %s has %d jobs that have not ended, and may have %d with the %d of this request: wait until some have ended, cancel some, or "+
			"ask the administrator for a higher --max-open-jobs", namespace, open, o.most, n)}
}

// take notes more jobs where a count of a moment ago leaves room for them.
func (o *openJobs) take(namespace string, n int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	is, known := o.known[namespace]
	if !known || o.now().Sub(is.at) > openAge || is.jobs+n > o.most {
		return false
	}
	is.jobs += n
	o.known[namespace] = is
	return true
}
