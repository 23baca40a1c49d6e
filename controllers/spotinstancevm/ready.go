package spotinstancevm

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/nodejoin"
)

// defaultIdleTimeout is that of the API, for objects from before it was a default.
const defaultIdleTimeout = 10 * time.Minute

func (p *planner) idleTimeout() time.Duration {
	return ptr.Deref(p.vm.Spec.IdleTimeout, metav1.Duration{Duration: defaultIdleTimeout}).Duration
}

// ready keeps an instance while pods use it, and deletes it when none did for a while.
func (p *planner) ready(i *instance) {
	if p.isDeleting() {
		p.markForDeletion(i, "the SpotInstanceVM is being deleted")
		return
	}
	p.label(i)
	if !i.memo.revoked && p.mayHoldToken(i) {
		p.do(actRevoke, i.Name)
	}
	if since, notReady := i.notReadySince(); notReady {
		left := since.Add(nodejoin.Timeout(&p.vm.Spec)).Sub(p.now)
		if left <= 0 {
			p.markForDeletion(i, "its node has not been Ready for "+p.now.Sub(since).Round(time.Second).String())
			return
		}
		p.d.lookAgain(left)
	}
	p.noteWork(i)
	if i.hasWork() || i.used {
		p.noteIdle(i, time.Time{})
		if i.isTaintedIdle() {
			p.do(actUntaint, i.Name)
		}
		return
	}
	p.idle(i)
}

// noteWork remembers since when an instance has had no work, whether it is kept for pods that wait or not. Pods of jobs that do not
// ask for instances are not known.
func (p *planner) noteWork(i *instance) {
	since := i.memo.emptySince
	switch {
	case i.hasWork():
		since = time.Time{}
		if len(i.pods) == 0 {
			p.d.lookAgain(settleIn)
		}
	case since.IsZero():
		since = p.now
	}
	p.d.remember(i.Name, func(m *memo) { m.emptySince = since })
}

func (p *planner) noteIdle(i *instance, since time.Time) {
	p.d.remember(i.Name, func(m *memo) { m.idleSince = since })
}

// idleSince is since when an instance is kept for nothing: now, if that was not so before.
func (p *planner) idleSince(i *instance) time.Time {
	since := i.memo.idleSince
	if since.IsZero() {
		since = p.now
	}
	p.noteIdle(i, since)
	return since
}

// mayHoldToken says whether something that the instance joined with may still be valid: what was made for it ends by
// itself after the time to join.
func (p *planner) mayHoldToken(i *instance) bool {
	return p.now.Sub(i.CreationTime.Time) < nodejoin.Timeout(&p.vm.Spec)+time.Hour
}

// idle deletes an instance without work in three steps, so that no pod is bound to it in between: no new pods, another
// look at the pods on it, the deletion.
func (p *planner) idle(i *instance) {
	since := p.idleSince(i)
	wait := p.idleTimeout()
	if p.alive() > p.most() {
		wait = 0
	}
	// A pod that waits is bound soon after the node is ready, even when idle nodes go at once.
	wait = max(wait, i.ReadyTime.Add(p.pace.Bind).Sub(since))
	if len(p.packing.Unexplained) > 0 { // the scheduler must have had the time to put them here
		wait = max(wait, settleIn)
	}
	if left := since.Add(wait).Sub(p.now); left > 0 {
		p.d.lookAgain(left)
		return
	}
	switch {
	case p.unsure:
		p.d.lookAgain(p.pace.First)
	case !i.isTaintedIdle():
		p.do(actTaint, i.Name)
	case !i.rechecked:
		p.d.lookAgain(time.Millisecond)
	default:
		if len(p.packing.Unexplained) > 0 {
			// Pods wait, and this node did not help them. The next would not either.
			p.problem = unscheduledProblem(p.packing.Unexplained[0].Name)
			p.d.hold = p.d.hold.extend(p.now, p.vm.Generation, p.problem, longestHold)
		}
		p.markForDeletion(i, "no pod of a job was on it for spec.idleTimeout")
	}
}

func unscheduledProblem(pod string) problem {
	return problem{
		reason: reasons.PodDoesNotFit,
		message: fmt.Sprintf("pod %s is not scheduled although an empty instance has the room for it: look at the pod's events; its node "+
			"selector, its tolerations or its volumes may keep it off", pod),
	}
}
