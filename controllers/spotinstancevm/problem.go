package spotinstancevm

import (
	"errors"
	"fmt"
	"time"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/cloud"
)

// trouble is what keeps a SpotInstanceVM from working, for its conditions.
type trouble struct {
	// reason is one of the condition reasons; empty when there is no trouble.
	reason string
	// message says what is wrong and what to do about it.
	message string
	// credentials says that it is about them.
	credentials bool
}

func (t trouble) is() bool { return t.reason != "" }

// setupError is a mistake in what an instance is to be made from: a missing Secret, or a Secret without a key.
type setupError struct {
	reason  string
	message string
}

func (e *setupError) Error() string { return e.message }

// troubleOf explains an error of the provider that stays until somebody does something. doing says what was tried.
func troubleOf(err error, doing string) trouble {
	if setup := (*setupError)(nil); errors.As(err, &setup) {
		return trouble{reason: setup.reason, message: setup.message}
	}
	text := short(err)
	switch cloud.ClassOf(err) {
	case cloud.Permission:
		return trouble{
			reason: reasons.PermissionDenied, credentials: true,
			message: fmt.Sprintf("the provider refused %s: %s: give the service account the role that docs/spot.md names, "+
				"or correct the Secret of the credentials", doing, text),
		}
	case cloud.Invalid, cloud.NotFound:
		return trouble{
			reason:  reasons.InvalidSpec,
			message: fmt.Sprintf("the provider does not take %s: %s: correct the spec", doing, text),
		}
	case cloud.Quota:
		return trouble{
			reason: reasons.ProviderQuotaExceeded,
			message: fmt.Sprintf("%s: %s: have the quota of the project raised, name zones of other regions in "+
				"spec.gcp.zones, or lower spec.maxInstances", doing, text),
		}
	case cloud.Stockout:
		return trouble{
			reason: reasons.ZoneExhausted,
			message: fmt.Sprintf("%s: %s: name more zones in spec.gcp.zones, another machine type, or set "+
				"spec.allowStandardFallback", doing, text),
		}
	default:
		return trouble{
			reason:  reasons.ProviderUnavailable,
			message: fmt.Sprintf("%s: %s: it is tried again; nothing needs to be done unless this stays", doing, text),
		}
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
func (h hold) extend(now time.Time, generation int64, why trouble, least time.Duration) hold {
	failures := 0
	if h.generation == generation {
		failures = h.failures
	}
	wait := max(firstHold, least)
	for range failures {
		if wait *= 2; wait >= max(longestHold, least) {
			wait = max(longestHold, least)
			break
		}
	}
	return hold{until: now.Add(wait), generation: generation, failures: failures + 1, trouble: why}
}

// holds says whether instances must not be asked for now.
func (h hold) holds(now time.Time, generation int64) bool {
	return h.generation == generation && now.Before(h.until)
}
