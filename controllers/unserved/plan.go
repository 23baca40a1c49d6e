package unserved

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
)

// The condition has the same type and reason in every API group.
const (
	conditionReady               = aiplatformv1alpha1.ConditionReady
	reasonControllerNotAvailable = aiplatformv1alpha1.ReasonControllerNotAvailable
)

// observed is all that a plan depends on.
type observed struct {
	kind       string
	generation int64
	deleted    bool
	conditions []metav1.Condition
	now        time.Time
}

// plan returns the conditions that the object should have. Those that others set stay as they are.
func plan(o observed) []metav1.Condition {
	conditions := slices.Clone(o.conditions)
	if o.deleted {
		return conditions
	}
	meta.SetStatusCondition(&conditions, metav1.Condition{
		Type:               conditionReady,
		Status:             metav1.ConditionFalse,
		Reason:             reasonControllerNotAvailable,
		Message:            message(o.kind),
		ObservedGeneration: o.generation,
		LastTransitionTime: metav1.NewTime(o.now),
	})
	return conditions
}

func message(kind string) string {
	return fmt.Sprintf("The API of %s is served and this object is stored, but this version of the operator does not act on it "+
		"yet: nothing is created for it.", kind)
}

// unchanged says whether two sets of conditions are the same.
func unchanged(before, after []metav1.Condition) bool {
	return equality.Semantic.DeepEqual(before, after)
}
