package reporting

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/child"
)

// longestMessage is what the API takes as the message of a condition, in bytes.
const longestMessage = 32768

// Set sets a condition. Its time changes with its status only.
func Set(conditions *[]metav1.Condition, generation int64, now time.Time, kind string, is metav1.ConditionStatus, reason, message string) {
	if len(message) > longestMessage {
		message = strings.ToValidUTF8(message[:longestMessage], "")
	}
	meta.SetStatusCondition(conditions, metav1.Condition{
		Type: kind, Status: is, Reason: reason, Message: message, ObservedGeneration: generation,
		LastTransitionTime: metav1.NewTime(now).Rfc3339Copy(),
	})
}

// SetChildrenApplied says in the conditions whether the children of an object could be written; failed is the error of that. Nothing is
// said until one could not, nor of errors that pass by themselves.
func SetChildrenApplied(conditions *[]metav1.Condition, generation int64, now time.Time, failed error) {
	problem := child.ProblemOf(failed)
	switch {
	case problem != nil:
		Set(conditions, generation, now, reasons.ConditionChildrenApplied, metav1.ConditionFalse, problem.Reason, problem.Message)
	case failed == nil && meta.IsStatusConditionFalse(*conditions, reasons.ConditionChildrenApplied):
		Set(conditions, generation, now, reasons.ConditionChildrenApplied, metav1.ConditionTrue, reasons.Ready, "all objects could be written")
	}
}

// Changed are the conditions that are new, or whose status or reason changed.
func Changed(before, after []metav1.Condition) []metav1.Condition {
	return slices.DeleteFunc(slices.Clone(after), func(is metav1.Condition) bool {
		was := meta.FindStatusCondition(before, is.Type)
		return was != nil && was.Status == is.Status && was.Reason == is.Reason
	})
}

// Message of a condition; empty when there is none of the type.
func Message(conditions []metav1.Condition, kind string) string {
	if c := meta.FindStatusCondition(conditions, kind); c != nil {
		return c.Message
	}
	return ""
}

// Reason of a condition; empty when there is none of the type.
func Reason(conditions []metav1.Condition, kind string) string {
	if c := meta.FindStatusCondition(conditions, kind); c != nil {
		return c.Reason
	}
	return ""
}
