package aijobqueue

import (
	"fmt"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/admission"
)

// observed is all that a plan depends on.
type observed struct {
	queue        *aiplatformv1alpha1.AIJobQueue
	figures      admission.QueueFigures
	classMissing bool
	now          time.Time
}

// plan returns the status that the queue should have. What others write into it stays.
func plan(o observed) aiplatformv1alpha1.AIJobQueueStatus {
	status := *o.queue.Status.DeepCopy()
	status.ObservedGeneration = o.queue.Generation
	status.Depth, status.Running = count(o.figures.Depth), count(o.figures.Running)
	status.OldestQueuedTime = nil
	if !o.figures.Oldest.IsZero() {
		status.OldestQueuedTime = ptr.To(metav1.NewTime(o.figures.Oldest).Rfc3339Copy())
	}
	status.Usage = usage(o.figures)
	value, reason, message := readiness(o)
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: aiplatformv1alpha1.ConditionReady, Status: value, Reason: reason, Message: message,
		ObservedGeneration: o.queue.Generation, LastTransitionTime: metav1.NewTime(o.now).Rfc3339Copy(),
	})
	return status
}

func readiness(o observed) (value metav1.ConditionStatus, reason, message string) {
	switch spec := &o.queue.Spec; {
	case ptr.Deref(spec.Suspend, false):
		return metav1.ConditionFalse, aiplatformv1alpha1.ReasonQueueSuspended,
			"spec.suspend is true: jobs that run go on, and no other is admitted until it is false"
	case o.classMissing:
		return metav1.ConditionTrue, aiplatformv1alpha1.ReasonPriorityClassNotFound, fmt.Sprintf(
			"the queue admits jobs, but there is no PriorityClass %s: their pods get the cluster's default; create it, or correct spec.priorityClass",
			spec.PriorityClass)
	}
	return metav1.ConditionTrue, aiplatformv1alpha1.ReasonReady, "the queue admits jobs"
}

func usage(f admission.QueueFigures) *aiplatformv1alpha1.ResourceUsage {
	sum := &aiplatformv1alpha1.ResourceUsage{GPUs: count(int(f.Usage.GPUs))}
	if f.Usage.MilliCPU > 0 {
		sum.CPU = resource.NewMilliQuantity(f.Usage.MilliCPU, resource.DecimalSI)
	}
	if f.Usage.Memory > 0 {
		sum.Memory = resource.NewQuantity(f.Usage.Memory, resource.BinarySI)
	}
	return sum
}

func count(n int) int32 { return int32(min(n, math.MaxInt32)) }
