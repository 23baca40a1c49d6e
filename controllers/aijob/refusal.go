package aijob

import (
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
)

// refusalOf says what the API server's refusal of an object means for the job, of which so many are to be made. Errors that say
// nothing about the object stay errors.
func refusalOf(err error, count int64, what string) (*failure, error) {
	if err == nil {
		return nil, nil
	}
	tell := func(kind consequence, reason, remedy string) (*failure, error) {
		return &failure{kind: kind, reason: reason, message: fmt.Sprintf("the API server refuses %s: %s%s", what, err, remedy)}, nil
	}
	switch text := err.Error(); {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause): // the job goes with its namespace
		return nil, nil
	case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err):
		return tell(hopeless, aiplatformv1alpha1.ReasonPodInvalid, "")
	case apierrors.IsForbidden(err) && strings.Contains(text, "exceeded quota"):
		if tooSmall(text, count) {
			return tell(hopeless, aiplatformv1alpha1.ReasonQuotaTooSmall, "; the job needs more than the quota allows in all: raise the quota")
		}
		return tell(refused, aiplatformv1alpha1.ReasonResourceQuotaExceeded, "; the job is queued again")
	case apierrors.IsForbidden(err) && strings.Contains(text, "violates PodSecurity"):
		return tell(hopeless, aiplatformv1alpha1.ReasonPodSecurityViolation, "")
	case apierrors.IsForbidden(err):
		return tell(refused, aiplatformv1alpha1.ReasonPodRejected, "; the job is queued again")
	}
	return nil, fmt.Errorf("create %s: %w", what, err)
}

var (
	quotaRequested = regexp.MustCompile(`requested: ([^ ]+?)(?:, used:|$)`)
	quotaLimited   = regexp.MustCompile(`limited: ([^ ]+)`)
)

// tooSmall says whether the message of a quota tells that so many objects never fit: what one requests, times their number, is
// more than the limit.
func tooSmall(message string, count int64) bool {
	requested, limited := quotaRequested.FindStringSubmatch(message), quotaLimited.FindStringSubmatch(message)
	if requested == nil || limited == nil {
		return false
	}
	limits := amounts(limited[1])
	for name, one := range amounts(requested[1]) {
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

// amounts reads requests.cpu=2,pods=1.
func amounts(text string) map[string]resource.Quantity {
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
