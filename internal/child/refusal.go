package child

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/redact"
)

// Refusal is what keeps an object from being created until a user or an administrator changes something.
type Refusal struct {
	// Reason is one of package reasons; RefusalOf and Check give InvalidSpec, ObjectConflict, ResourceQuotaExceeded, PodSecurityViolation or Forbidden.
	Reason string
	// Message names the object, the cause and what helps.
	Message string
}

func (r *Refusal) Error() string { return r.Message }

// ProblemOf is what a status says of a write that failed, or of the first such of errors that are joined: what the API server refuses, or
// WriteFailed. It is nil for errors that pass by themselves: see RetryAfter.
func ProblemOf(err error) *Refusal {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range several.Unwrap() {
			if found := ProblemOf(one); found != nil {
				return found
			}
		}
		return nil
	}
	var refusal *Refusal
	_, passes := RetryAfter(err)
	switch {
	case err == nil || passes:
		return nil
	case errors.As(err, &refusal):
		return refusal
	}
	return &Refusal{reasons.WriteFailed, redact.Text(err.Error()) + "; it is tried again"}
}

// Permanent says whether only another spec helps.
func (r *Refusal) Permanent() bool {
	return r.Reason == reasons.InvalidSpec || r.Reason == reasons.PodSecurityViolation
}

// RefusalOf is what the API server's answer to a write says about the object; nil when it says nothing about it.
func RefusalOf(err error, what string) *Refusal {
	switch {
	case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err):
		return &Refusal{reasons.InvalidSpec, fmt.Sprintf("the API server refuses %s: %v", what, err)}
	case apierrors.IsForbidden(err):
		reason, remedy := Forbidden(err.Error(), "the security context")
		return &Refusal{cmp.Or(reason, reasons.Forbidden), fmt.Sprintf("the API server refuses %s: %v%s", what, err, remedy)}
	}
	return nil
}

// Forbidden tells from the API server's text why an object, or the pods made from it, are forbidden, and what helps, as the end of a
// message. The reason is empty when the cause is neither a quota nor Pod Security. securityContext names the field that sets it.
func Forbidden(text, securityContext string) (reason, remedy string) {
	switch {
	case strings.Contains(text, "exceeded quota"):
		return reasons.ResourceQuotaExceeded, "; free or raise the quota, or request less"
	case strings.Contains(text, "violates PodSecurity"):
		return reasons.PodSecurityViolation, "; correct " + securityContext + ", or use another namespace"
	}
	return "", ""
}
