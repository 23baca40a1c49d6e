package rest

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

const (
	// DefaultMaxOpenJobs bounds what one namespace may fill the store with.
	DefaultMaxOpenJobs = 50000
	// DefaultMaxOpenJobsPerUser bounds what one user may fill it with, and leaves others of the namespace room.
	DefaultMaxOpenJobsPerUser = 20000
)

const (
	// openAge is how long a count of open jobs serves. What other replicas accept meanwhile is not in it.
	openAge = 5 * time.Second
	// openAgain is when a client may ask again after there were too many.
	openAgain = "30"
)

// openJobs bounds the jobs of each namespace, and of each user, that have not ended.
type openJobs struct{ namespaces, users openLimit }

func newOpenJobs(o *Options) *openJobs {
	open := &openJobs{
		namespaces: openLimit{of: "namespace", flag: "--max-open-jobs", most: o.MaxOpenJobs},
		users:      openLimit{of: "user", flag: "--max-open-jobs-per-user", most: o.MaxOpenJobsPerUser},
	}
	for _, limit := range []*openLimit{&open.namespaces, &open.users} {
		limit.now, limit.known, limit.settled.L = o.Now, map[string]*opened{}, &limit.mu
	}
	if o.Store != nil {
		open.namespaces.count, open.users.count = o.Store.OpenIn, o.Store.OpenOf
	}
	return open
}

// admit notes jobs of a user that are about to be submitted, until they are settled. The error is that there are too many.
func (o *openJobs) admit(ctx context.Context, user string, batch []*jobs.Job) (admitted, error) {
	noted := make(admitted, 0, 2)
	note := func(limit *openLimit, name string, n int) error {
		one, err := limit.add(ctx, name, n)
		if err != nil {
			for _, other := range noted {
				other.limit.settle(other, true)
			}
		} else if one.limit != nil {
			noted = append(noted, one)
		}
		return err
	}
	// In one order, the user last, so that no two requests wait for each other.
	if len(batch) == 1 {
		if err := note(&o.namespaces, batch[0].Namespace, 1); err != nil {
			return nil, err
		}
	} else {
		more := map[string]int{}
		for _, job := range batch {
			more[job.Namespace]++
		}
		for _, namespace := range slices.Sorted(maps.Keys(more)) {
			if err := note(&o.namespaces, namespace, more[namespace]); err != nil {
				return nil, err
			}
		}
	}
	if err := note(&o.users, user, len(batch)); err != nil {
		return nil, err
	}
	return noted, nil
}

// admitted are jobs on their way into the store.
type admitted []noted

// noted are jobs of a namespace, or of a user.
type noted struct {
	limit *openLimit
	of    *opened
	n     int
}

// settle says that the store has the jobs, or has refused them. Those that it refused are counted until the next count.
func (a admitted) settle() {
	for _, one := range a {
		one.limit.settle(one, false)
	}
}

// openLimit bounds the open jobs of all that have names.
type openLimit struct {
	of, flag string // for the answer
	most     int    // 0: any number
	count    func(ctx context.Context, name string) (int, error)
	now      func() time.Time
	counts   singleflight.Group

	mu      sync.Mutex
	settled sync.Cond // no more jobs of a name are on their way
	known   map[string]*opened
}

// opened are the open jobs of one name.
type opened struct {
	// jobs by the count at a time, and those noted since; the zero time: there is no count.
	jobs int
	at   time.Time
	// coming are noted, and may not be in the store yet.
	coming int
}

func (l *openLimit) add(ctx context.Context, name string, n int) (noted, error) {
	if l.most <= 0 {
		return noted{}, nil
	}
	for counted := false; ; counted = true {
		one, open, known := l.take(name, n)
		switch {
		case one.limit != nil:
			return one, nil
		case known && counted:
			return noted{}, &problem{status: http.StatusTooManyRequests, header: "Retry-After", value: openAgain, message: fmt.Sprintf(
				"%s %s has %d jobs that have not ended, and may have %d with the %d of this request: wait until some have ended, cancel some, or "+
					"ask the administrator for a higher %s", l.of, name, open, l.most, n, l.flag)}
		}
		// One count serves all who wait for it, also when the first of them goes.
		if _, err, _ := l.counts.Do(name, func() (any, error) { return nil, l.recount(context.WithoutCancel(ctx), name) }); err != nil {
			return noted{}, err
		}
	}
}

// take notes more jobs where a count of a moment ago leaves room for them. Else it returns that count, when it is known.
func (l *openLimit) take(name string, n int) (one noted, open int, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	is := l.known[name]
	if is == nil || l.now().Sub(is.at) > openAge {
		return noted{}, 0, false
	}
	if is.jobs+n > l.most {
		return noted{}, is.jobs, true
	}
	is.jobs += n
	is.coming += n
	return noted{l, is, n}, is.jobs, true
}

func (l *openLimit) settle(one noted, refused bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if refused {
		one.of.jobs -= one.n
	}
	if one.of.coming -= one.n; one.of.coming == 0 {
		l.settled.Broadcast()
	}
}

// recount asks the store. Nothing is noted for the name meanwhile, and jobs on their way are added: some of them may be counted twice. Where
// that could refuse what there is room for, it waits until all are in the store.
func (l *openLimit) recount(ctx context.Context, name string) error {
	l.mu.Lock()
	is := l.known[name]
	if is == nil {
		if len(l.known) >= maxClients {
			maps.DeleteFunc(l.known, func(_ string, other *opened) bool { return other.coming == 0 })
		}
		is = &opened{}
		l.known[name] = is
	}
	is.at = time.Time{}
	coming := is.coming
	l.mu.Unlock()

	open, err := l.count(ctx, name)
	if err == nil && coming > 0 && open+coming+maxBatch > l.most {
		l.mu.Lock()
		for is.coming > 0 {
			l.settled.Wait()
		}
		l.mu.Unlock()
		coming = 0
		open, err = l.count(ctx, name)
	}
	if err != nil {
		return err
	}
	l.mu.Lock()
	is.jobs, is.at = open+coming, l.now()
	l.mu.Unlock()
	return nil
}
