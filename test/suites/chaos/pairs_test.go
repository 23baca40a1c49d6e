package chaos

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// twoManagers has a second manager work beside the first for a while, as after a lease that was lost without notice.
func (w *world) twoManagers() {
	if !w.alone.TryLock() {
		return
	}
	w.faults.add(twoManagers)
	w.pairs.begin(w.revision())
	go func() {
		defer w.alone.Unlock()
		if err := w.beside.TryStart(); err != nil {
			w.note("%v", err)
		}
		w.pause(4 * time.Second)
		w.beside.Kill()
		w.pause(time.Second) // the first one may not have seen yet what the second one wrote
		w.pairs.end(w.revision())
	}()
}

// revision is that of the database now.
func (w *world) revision() uint64 {
	var list corev1.NamespaceList
	if err := w.List(context.Background(), &list); err != nil {
		w.note("ask for the revision of the database: %v", err)
		return 0
	}
	return revisionOf(&list)
}

// pairs are the spans of revisions in which two managers worked. Only the lease keeps two from giving the same room in a queue away at once:
// what they do to a job they do once, but their decisions are about different jobs.
type pairs struct {
	mu    sync.Mutex
	spans []span
}

type span struct{ first, last uint64 }

func (p *pairs) begin(revision uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spans = append(p.spans, span{first: revision, last: math.MaxUint64})
}

func (p *pairs) end(revision uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spans[len(p.spans)-1].last = revision
}

func (p *pairs) at(revision uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.spans, func(s span) bool { return s.first < revision && revision <= s.last })
}
