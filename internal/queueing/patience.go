package queueing

import (
	"time"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
)

// StaleDecision is when to look again for a decision on the present spec of a job, where the one that is known is on an earlier one.
const StaleDecision = 100 * time.Millisecond

// patience is how long an admitted job keeps its place while something keeps its pods from starting, by the reason of that. What is not
// in the table ends as PodsNotStarted does.
var patience = map[string]time.Duration{
	// Nothing changes before a user or an administrator changes something.
	reasons.ResourceQuotaExceeded: 0, reasons.PodSecurityViolation: 0, reasons.Forbidden: 0, reasons.ObjectConflict: 0,
	reasons.InvalidImageName: 0,
	// kube-scheduler has no choice of nodes: pods of others use the resources, or the nodes have changed.
	reasons.Unschedulable: time.Minute,
	// What a container needs, such as a Secret, may appear.
	reasons.ContainerConfigError: 2 * time.Minute, reasons.ContainerStartFailed: 2 * time.Minute,
	// Who has closed the network between the workers may open it.
	reasons.PeerNotResolved: 5 * time.Minute, reasons.PeerUnreachable: 5 * time.Minute, reasons.PeerRefused: 5 * time.Minute,
	// A registry, a webhook or the API server may be away.
	reasons.ImagePullFailed: 5 * time.Minute, reasons.PodCreationFailed: 5 * time.Minute, reasons.WriteFailed: 5 * time.Minute,
	// A volume is being made and bound; kube-scheduler gives up after as long.
	reasons.ClaimPending: 10 * time.Minute,
	// All together: large images take long.
	reasons.PodsNotStarted: 30 * time.Minute,
}

// Patience is how long an admitted job keeps its place while its pods do not start for a reason.
func Patience(reason string) time.Duration {
	if is, ok := patience[reason]; ok {
		return is
	}
	return patience[reasons.PodsNotStarted]
}

// RetryPause is how long a job waits before it is queued again whose pods did not start in its place, after so many such pauses before.
func RetryPause(before int) time.Duration {
	const first, longest = 30 * time.Second, 30 * time.Minute
	return reconciling.Doubled(first, longest, before)
}
