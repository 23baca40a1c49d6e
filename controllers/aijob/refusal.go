package aijob

import (
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/child"
)

// failureOfRefusal says what it means for the job that the API server refuses an object; count is how many of them the job needs.
func failureOfRefusal(refusal *child.Refusal, count int64) *failure {
	switch {
	case refusal.Permanent():
		return &failure{kind: hopeless, reason: refusal.Reason, message: refusal.Message}
	case refusal.Reason == reasons.ResourceQuotaExceeded && isQuotaTooSmall(refusal.Message, count):
		return &failure{kind: hopeless, reason: reasons.QuotaTooSmall,
			message: refusal.Message + "; the job needs more than the quota allows in all: raise the quota"}
	}
	return &failure{kind: refused, reason: refusal.Reason, message: refusal.Message + "; the job is queued again"}
}

var (
	quotaRequested = regexp.MustCompile(`requested: ([^ ]+?)(?:, used:|$)`)
	quotaLimited   = regexp.MustCompile(`limited: ([^ ;]+)`)
)

// isQuotaTooSmall says whether the message of a quota tells that so many objects never fit: what one requests, times their number, is
// more than the limit.
func isQuotaTooSmall(message string, count int64) bool {
	requested, limited := quotaRequested.FindStringSubmatch(message), quotaLimited.FindStringSubmatch(message)
	if requested == nil || limited == nil {
		return false
	}
	limits := parseAmounts(limited[1])
	for name, one := range parseAmounts(requested[1]) {
		limit, known := limits[name]
		if !known {
			continue
		}
		all := one.DeepCopy()
		if all.Mul(count); all.Cmp(limit) > 0 {
			return true
		}
	}
	return false
}

// parseAmounts reads requests.cpu=2,pods=1.
func parseAmounts(text string) map[string]resource.Quantity {
	list := map[string]resource.Quantity{}
	for _, part := range strings.Split(text, ",") {
		name, amount, ok := strings.Cut(part, "=")
		if !ok {
			continue
		}
		if quantity, err := resource.ParseQuantity(amount); err == nil {
			list[name] = quantity
		}
	}
	return list
}
