package scheduler

import (
	"math"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
)

// selectorOf is the namespaceSelector of a queue; nil without one. One that is not valid selects no namespace.
func selectorOf(of *aiplatformv1alpha1.AIJobQueue) labels.Selector {
	if of.Spec.NamespaceSelector == nil {
		return nil
	}
	selector, err := metav1.LabelSelectorAsSelector(of.Spec.NamespaceSelector)
	if err != nil {
		return labels.Nothing()
	}
	return selector
}

// selects says whether jobs of a namespace may be in the queue. Where there is a selector, a namespace that is not known is not selected.
func (q *queue) selects(namespace string, known map[string]labels.Set) bool {
	if q.selector == nil {
		return true
	}
	has, ok := known[namespace]
	return ok && q.selector.Matches(has)
}

// highest is the priority above which the queue admits no job.
func (q *queue) highest() int32 { return ptr.Deref(q.Spec.MaxPriority, math.MaxInt32) }
