package spotinstancevm

import (
	"errors"
	"fmt"
	"time"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/child"
	"github.com/dcnlab/spot-training-operator/internal/cloud"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
)

// problem is what keeps a SpotInstanceVM from working, for its conditions.
type problem struct {
	// reason is one of the condition reasons; empty when there is no problem.
	reason string
	// message says what is wrong and what to do about it.
	message string
	// credentials says that it is about them.
	credentials bool
}

func (t problem) exists() bool { return t.reason != "" }

// problemOf explains an error of the provider that stays until a user acts. doing says what was tried.
func problemOf(err error, doing string) problem {
	if setup := (*child.Refusal)(nil); errors.As(err, &setup) { // a mistake in what an instance is to be made from, such as a Secret
		return problem{reason: setup.Reason, message: setup.Message}
	}
	says := func(reason, format string) problem {
		return problem{reason: reason, message: fmt.Sprintf(format, doing, short(err)), credentials: reason == reasons.PermissionDenied}
	}
	switch cloud.ClassOf(err) {
	case cloud.Permission:
		return says(reasons.PermissionDenied, "the provider refused %s: %s: give the service account the role that docs/spot.md names, "+
			"or correct the Secret of the credentials")
	case cloud.Invalid, cloud.NotFound:
		return says(reasons.InvalidSpec, "the provider does not take %s: %s: correct the spec")
	case cloud.Quota:
		return says(reasons.ProviderQuotaExceeded, "%s: %s: have the quota of the project raised, name zones of other regions in "+
			"spec.gcp.zones, or lower spec.maxInstances")
	case cloud.Stockout:
		return says(reasons.ZoneExhausted, "%s: %s: name more zones in spec.gcp.zones, another machine type, or set "+
			"spec.allowStandardFallback")
	default:
		return says(reasons.ProviderUnavailable, "%s: %s: it is tried again; nothing needs to be done unless this stays")
	}
}

// longestText of a provider's error in a condition.
const longestText = 512

// short is the text of an error, cut where it gets too long for a status; nothing for none.
func short(err error) string {
	if err == nil {
		return ""
	}
	text := []rune(err.Error())
	if len(text) > longestText {
		return string(text[:longestText]) + "..."
	}
	return string(text)
}

// firstHold and longestHold bound how long a failure that would only repeat itself keeps a SpotInstanceVM from asking
// again. A change of its spec ends the wait.
const (
	firstHold   = 30 * time.Second
	longestHold = 10 * time.Minute
)

// extend the hold by another failure.
func (h hold) extend(now time.Time, generation int64, why problem, least time.Duration) hold {
	failures := 0
	if h.generation == generation {
		failures = h.failures
	}
	wait := reconciling.Doubled(max(firstHold, least), max(longestHold, least), failures)
	return hold{until: now.Add(wait), generation: generation, failures: failures + 1, problem: why}
}

// isActive says whether instances must not be asked for now.
func (h hold) isActive(now time.Time, generation int64) bool {
	return h.generation == generation && now.Before(h.until)
}
