package queueing

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// figuresEvery is how far apart the figures in a status are written while they change all the time.
	figuresEvery = 3 * time.Second
	// retryConflict is when to look again at an object that somebody else has written.
	retryConflict = 100 * time.Millisecond
	// fieldOwner is who the API server notes as the writer of a status.
	fieldOwner = client.FieldOwner("spot-training-operator")
)

// Pace writes statuses with figures that change all the time, of objects without a namespace.
type Pace struct {
	mutex   sync.Mutex
	written map[string]time.Time
}

// Report writes the status of an object when it changed: at once when that is urgent, and else at most every few seconds. The result
// says when to look at the object again.
func (p *Pace) Report(ctx context.Context, to client.StatusClient, was, is client.Object, urgent bool, now time.Time) (ctrl.Result, error) {
	if equality.Semantic.DeepEqual(was, is) {
		return ctrl.Result{}, nil
	}
	if wait := p.wait(was.GetName(), now); wait > 0 && !urgent {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	lock := client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{})
	err := to.Status().Patch(ctx, is, lock, fieldOwner)
	if apierrors.IsConflict(err) { // somebody wrote in between, and the cache will have it soon
		return ctrl.Result{RequeueAfter: retryConflict}, nil
	}
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	p.note(was.GetName(), now)
	return ctrl.Result{}, nil
}

// wait is how long to wait before the figures of an object are written; 0 for now.
func (p *Pace) wait(name string, now time.Time) time.Duration {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return max(0, p.written[name].Add(figuresEvery).Sub(now))
}

func (p *Pace) note(name string, now time.Time) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.written == nil {
		p.written = map[string]time.Time{}
	}
	p.written[name] = now
}

// Forget an object that is gone.
func (p *Pace) Forget(name string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	delete(p.written, name)
}
