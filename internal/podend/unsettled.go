package podend

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// settleWithin is how long after a failure it can turn out to be the loss of a node. A cluster takes up to 55 seconds to find that a
	// node is not ready.
	settleWithin = time.Minute
	// SettleInterval is how often the nodes are read meanwhile.
	SettleInterval = 5 * time.Second
	// maxUnsettled bounds the list. The oldest give way, and stay counted.
	maxUnsettled = 32
)

// UnsettledFailure is the end of pods that lost contact to one that has reported no end, as it stands in the status of a job. When a node
// dies, this happens long before the cluster knows of the node: the job is tried again at once, and the count is settled later.
type UnsettledFailure struct {
	// Time at which it was seen.
	Time metav1.Time
	// Nodes of the silent pods, with their boot IDs then.
	Nodes map[string]string
	// Retried says that the job is tried again after it. One after which it would not be is held until it is settled.
	Retried bool
}

// Unsettled are such failures of a job, the oldest first.
type Unsettled []UnsettledFailure

// Settled is a failure that turned out to be the loss of a node.
type Settled struct {
	UnsettledFailure

	// Node that was lost, and Why.
	Node, Why string
}

// Settle removes the failures that turn out to be losses, which it returns, and those that have become failures finally. One that is
// held is judged with its pods; it is removed when the job no longer waits for it.
func (u *Unsettled) Settle(now time.Time, nodes map[string]*corev1.Node, waits bool) (lost []Settled) {
	*u = slices.DeleteFunc(*u, func(f UnsettledFailure) bool {
		if !f.Retried {
			return !waits
		}
		if node, why := LostNode(f.Nodes, nodes); node != "" {
			lost = append(lost, Settled{f, node, why})
			return true
		}
		return f.left(now) <= 0
	})
	return lost
}

// Held is the failure that is held; nil when none is.
func (u Unsettled) Held() *UnsettledFailure {
	if at := u.held(); at >= 0 {
		return &u[at]
	}
	return nil
}

func (u Unsettled) held() int {
	return slices.IndexFunc(u, func(f UnsettledFailure) bool { return !f.Retried })
}

// Note adds the failure with silent nodes, if there are any, and notes whether the job is tried again after it. One that was held stays
// as it is otherwise.
func (u *Unsettled) Note(now time.Time, silent map[string]string, retried bool) {
	if held := u.Held(); held != nil {
		held.Retried = retried
		return
	}
	if len(silent) > 0 {
		*u = append(*u, UnsettledFailure{metav1.NewTime(now), silent, retried})
		*u = (*u)[max(len(*u)-maxUnsettled, 0):]
	}
}

// Drop removes the failure that is held: it was a loss.
func (u *Unsettled) Drop() {
	if at := u.held(); at >= 0 {
		*u = slices.Delete(*u, at, at+1)
	}
}

// Wait is how long until all failures are settled, or only that which is held; 0 when they are. It names the nodes that decide.
func (u Unsettled) Wait(now time.Time, all bool) (wait time.Duration, nodes string) {
	names := map[string]string{}
	for _, f := range u {
		if left := f.left(now); left > 0 && (all || !f.Retried) {
			wait = max(wait, left)
			maps.Copy(names, f.Nodes)
		}
	}
	return wait, strings.Join(slices.Sorted(maps.Keys(names)), ", ")
}

func (f UnsettledFailure) left(now time.Time) time.Duration { return f.Time.Add(settleWithin).Sub(now) }
