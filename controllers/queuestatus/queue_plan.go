package queuestatus

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/queueing"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
)

// observedQueue is all that a queue's plan is made from.
type observedQueue struct {
	queue        *aiplatformv1alpha1.AIJobQueue
	figures      queueing.QueueFigures
	classMissing bool
	now          time.Time
}

// planQueue returns the status that the queue should have. What others write into it stays.
func planQueue(o observedQueue) aiplatformv1alpha1.AIJobQueueStatus {
	status := *o.queue.Status.DeepCopy()
	status.ObservedGeneration = o.queue.Generation
	status.Depth, status.Running = count(int64(o.figures.Depth)), count(int64(o.figures.Running))
	status.OldestQueuedTime = nil
	if !o.figures.Oldest.IsZero() {
		status.OldestQueuedTime = ptr.To(metav1.NewTime(o.figures.Oldest).Rfc3339Copy())
	}
	status.Usage = usage(o.figures)
	value, reason, message := readiness(o)
	reporting.Set(&status.Conditions, o.queue.Generation, o.now, reasons.ConditionReady, value, reason, message)
	return status
}

func readiness(o observedQueue) (value metav1.ConditionStatus, reason, message string) {
	switch spec := &o.queue.Spec; {
	case ptr.Deref(spec.Suspend, false):
		return metav1.ConditionFalse, reasons.QueueSuspended,
			"spec.suspend is true: running jobs continue, and no other is admitted until it is false"
	case o.classMissing:
		return metav1.ConditionTrue, reasons.PriorityClassNotFound, fmt.Sprintf(
			"the queue admits jobs, but there is no PriorityClass %s: their pods get the cluster's default; create it, or correct spec.priorityClass",
			spec.PriorityClass)
	}
	return metav1.ConditionTrue, reasons.Ready, "the queue admits jobs"
}

func usage(f queueing.QueueFigures) *aiplatformv1alpha1.ResourceUsage {
	sum := &aiplatformv1alpha1.ResourceUsage{GPUs: count(f.Usage.GPUs)}
	if f.Usage.MilliCPU > 0 {
		sum.CPU = resource.NewMilliQuantity(f.Usage.MilliCPU, resource.DecimalSI)
	}
	if f.Usage.Memory > 0 {
		sum.Memory = resource.NewQuantity(f.Usage.Memory, resource.BinarySI)
	}
	return sum
}
