package podend

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dcnlab/spot-training-operator/api/reasons"
)

// Obstacle is what keeps a pod from starting.
type Obstacle struct {
	// Reason is Unschedulable, InvalidImageName, ImagePullFailed, ContainerConfigError, ContainerStartFailed or ContainerCrashing.
	Reason string
	// Container that waits, and its image; empty when the pod has no node.
	Container, Image string
	// Detail is what the scheduler or the kubelet says.
	Detail string
	// Since is when the scheduler first found no node; zero for the other reasons: the pod has no time of them.
	Since time.Time
}

// ContainerCrashing is the reason of a container that ends again and again. No status has it: each kind of pod has a reason of its own.
const ContainerCrashing = "ContainerCrashing"

// waiting are the reasons of obstacles by the kubelet's reason for a container that waits.
var waiting = map[string]string{
	"InvalidImageName": reasons.InvalidImageName,
	"ErrImagePull":     reasons.ImagePullFailed, "ImagePullBackOff": reasons.ImagePullFailed, "ErrImageNeverPull": reasons.ImagePullFailed,
	"RegistryUnavailable": reasons.ImagePullFailed, "ImageInspectError": reasons.ImagePullFailed,
	"SignatureValidationFailed":  reasons.ImagePullFailed,
	"CreateContainerConfigError": reasons.ContainerConfigError,
	"CreateContainerError":       reasons.ContainerStartFailed, "RunContainerError": reasons.ContainerStartFailed,
	"StartError": reasons.ContainerStartFailed, "PostStartHookError": reasons.ContainerStartFailed,
	"CrashLoopBackOff": ContainerCrashing,
}

// ObstacleOf is what keeps a pod from starting; nil when nothing is known to.
func ObstacleOf(pod *corev1.Pod) *Obstacle {
	if refused := Unschedulable(pod); refused != nil {
		return &Obstacle{
			Reason: reasons.Unschedulable, Detail: strings.TrimSuffix(refused.Message, "."), Since: refused.LastTransitionTime.Time,
		}
	}
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if status.State.Waiting == nil {
			continue
		}
		if reason := waiting[status.State.Waiting.Reason]; reason != "" {
			return &Obstacle{
				Reason: reason, Container: status.Name, Image: strings.TrimSpace(status.Image), Detail: status.State.Waiting.Message,
			}
		}
	}
	return nil
}

// schedulerPatience is how long a scheduler may take to look at a new pod.
const schedulerPatience = time.Minute

// SchedulerDue is when a scheduler should have looked at a pod; zero when one has.
func SchedulerDue(pod *corev1.Pod) time.Time {
	looked := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodScheduled })
	if looked || pod.Spec.NodeName != "" || pod.Status.Phase == corev1.PodRunning || IsEnded(pod) || pod.DeletionTimestamp != nil {
		return time.Time{}
	}
	return pod.CreationTimestamp.Add(schedulerPatience)
}

// SilentScheduler names the scheduler that has not looked at a pod, as the end of a message.
func SilentScheduler(pod *corev1.Pod) string {
	return fmt.Sprintf("scheduler %s has not looked at it for %s: see whether it runs",
		cmp.Or(pod.Spec.SchedulerName, corev1.DefaultSchedulerName), schedulerPatience)
}

// DelayOf is why a pod has not started yet: its obstacle or, when none is known, that it has no node (Unschedulable) or takes long
// (PodsNotStarted).
func DelayOf(pod *corev1.Pod) Obstacle {
	if pod.Spec.NodeName == "" {
		delay := Obstacle{Reason: reasons.Unschedulable}
		if refused := SchedulingRefused(pod); refused != nil {
			delay.Detail, delay.Since = strings.TrimSuffix(refused.Message, "."), refused.LastTransitionTime.Time
		} else if !SchedulerDue(pod).IsZero() {
			delay.Detail = SilentScheduler(pod)
		}
		return delay
	}
	if found := ObstacleOf(pod); found != nil && found.Reason != ContainerCrashing {
		return *found
	}
	return Obstacle{Reason: reasons.PodsNotStarted}
}

// Unschedulable is what the scheduler says of a pod that it finds no node for; nil when it does not say so.
func Unschedulable(pod *corev1.Pod) *corev1.PodCondition {
	if refused := SchedulingRefused(pod); refused != nil && refused.Reason == corev1.PodReasonUnschedulable {
		return refused
	}
	return nil
}

// SchedulingRefused is the condition by which the scheduler says that a pod gets no node; nil when it does not say so.
func SchedulingRefused(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c
		}
	}
	return nil
}
