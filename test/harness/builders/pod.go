package builders

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// PodBuilder builds the pod of a worker.
type PodBuilder struct{ pod corev1.Pod }

// Pod begins the pod of one replica of an Indexed Job. It is Pending, and has its label replica-id.
func Pod(workers *batchv1.Job, replica int) *PodBuilder {
	attempt, index := workers.Annotations[mlv1.AnnotationAttempt], strconv.Itoa(replica)
	job := workers.Labels[mlv1.LabelTrainingJob]
	return &PodBuilder{corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("%s-%d-a%s", workers.Name, replica, attempt), Namespace: workers.Namespace,
			UID:               types.UID(fmt.Sprintf("uid-of-%s-%d-a%s", workers.Name, replica, attempt)),
			CreationTimestamp: metav1.NewTime(Noon),
			Labels: map[string]string{
				mlv1.LabelTrainingJob: job, mlv1.LabelTrainingJobCompact: job, mlv1.LabelReplicaID: index,
				batchv1.JobCompletionIndexAnnotation: index,
			},
			Annotations:     map[string]string{batchv1.JobCompletionIndexAnnotation: index, mlv1.AnnotationAttempt: attempt},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(workers, batchv1.SchemeGroupVersion.WithKind("Job"))},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}},
		},
	}}
}

// Unseen makes it a pod that no scheduler has looked at, not even the one that it names.
func (b *PodBuilder) Unseen(scheduler string) *PodBuilder {
	b.pod.Spec.SchedulerName, b.pod.Status.Conditions = scheduler, nil
	return b
}

// Obj returns the pod, which later calls of the builder do not change.
func (b *PodBuilder) Obj() *corev1.Pod { return b.pod.DeepCopy() }

// Again makes it the pod that replaces an earlier one of the same replica, so long after noon.
func (b *PodBuilder) Again(since time.Duration) *PodBuilder {
	b.pod.Name += "-again"
	b.pod.UID += "-again"
	b.pod.CreationTimestamp = metav1.NewTime(Noon.Add(since))
	return b
}

// On puts the pod onto a node.
func (b *PodBuilder) On(node string) *PodBuilder {
	b.pod.Spec.NodeName = node
	return b
}

// Created sets when the pod was made, counted from Noon.
func (b *PodBuilder) Created(since time.Duration) *PodBuilder {
	b.pod.CreationTimestamp = metav1.NewTime(Noon.Add(since))
	return b
}

// Unlabelled takes the label replica-id away.
func (b *PodBuilder) Unlabelled() *PodBuilder {
	delete(b.pod.Labels, mlv1.LabelReplicaID)
	return b
}

// Orphaned takes the pod away from its Job.
func (b *PodBuilder) Orphaned() *PodBuilder {
	b.pod.OwnerReferences = nil
	return b
}

// Running makes the pod run and be ready, at an address of its own.
func (b *PodBuilder) Running() *PodBuilder {
	b.pod.Status.Phase, b.pod.Status.PodIP = corev1.PodRunning, "10.0.0.1"+b.pod.Annotations[batchv1.JobCompletionIndexAnnotation]
	b.container(corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(Noon)}})
	return b.condition(corev1.PodReady, corev1.ConditionTrue, "", "")
}

// Succeeded ends the pod's container with exit code 0 and a termination message.
func (b *PodBuilder) Succeeded(message string) *PodBuilder {
	b.pod.Status.Phase = corev1.PodSucceeded
	b.container(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		Reason: "Completed", Message: message, FinishedAt: metav1.NewTime(Noon),
	}})
	return b
}

// Failed ends the pod's container with an exit code.
func (b *PodBuilder) Failed(exitCode int32) *PodBuilder {
	b.pod.Status.Phase = corev1.PodFailed
	b.container(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: exitCode, Reason: "Error", FinishedAt: metav1.NewTime(Noon),
	}})
	return b
}

// After sets when the container ended, counted from Noon. Failed comes before it.
func (b *PodBuilder) After(since time.Duration) *PodBuilder {
	b.ended().FinishedAt = metav1.NewTime(Noon.Add(since))
	return b
}

// Saying sets the termination message. Failed comes before it.
func (b *PodBuilder) Saying(message string) *PodBuilder {
	b.ended().Message = message
	return b
}

// For sets the reason of the container's end. Failed comes before it.
func (b *PodBuilder) For(reason string) *PodBuilder {
	b.ended().Reason = reason
	return b
}

// Stopped sets the reason and message of the pod's status, which the kubelet gives to pods that it stops itself.
func (b *PodBuilder) Stopped(reason, message string) *PodBuilder {
	b.pod.Status.Reason, b.pod.Status.Message = reason, message
	return b
}

// FailedWithoutContainer fails the pod before any container ran, for example evicted by the kubelet.
func (b *PodBuilder) FailedWithoutContainer(reason, message string) *PodBuilder {
	b.pod.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: reason, Message: message}
	return b
}

// Disrupted marks the pod as lost to something outside the training.
func (b *PodBuilder) Disrupted(reason, message string) *PodBuilder {
	return b.condition(corev1.DisruptionTarget, corev1.ConditionTrue, reason, message)
}

// Deleting has the pod deleted with a grace period of a minute: it should be gone at the time, counted from Noon.
func (b *PodBuilder) Deleting(due time.Duration) *PodBuilder {
	b.pod.DeletionTimestamp, b.pod.DeletionGracePeriodSeconds = ptr.To(metav1.NewTime(Noon.Add(due))), ptr.To[int64](60)
	return b
}

// Unschedulable says why the scheduler found no node.
func (b *PodBuilder) Unschedulable(message string) *PodBuilder {
	return b.condition(corev1.PodScheduled, corev1.ConditionFalse, corev1.PodReasonUnschedulable, message)
}

// Waiting says why the container does not start.
func (b *PodBuilder) Waiting(reason, message string) *PodBuilder {
	b.container(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}})
	return b
}

// InitRunning adds an init container that runs, as a sidecar does beside the training.
func (b *PodBuilder) InitRunning(name string) *PodBuilder {
	return b.init(name, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(Noon)}})
}

// InitWaiting adds an init container that does not start.
func (b *PodBuilder) InitWaiting(name, reason, message string) *PodBuilder {
	return b.init(name, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}})
}

// InitEnded adds an init container that has ended, with its termination message.
func (b *PodBuilder) InitEnded(name string, exitCode int32, message string) *PodBuilder {
	return b.init(name, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: exitCode, Message: message, FinishedAt: metav1.NewTime(Noon),
	}})
}

// FailedToInit fails the pod because an init container did.
func (b *PodBuilder) FailedToInit() *PodBuilder {
	b.pod.Status.Phase = corev1.PodFailed
	return b.Waiting("PodInitializing", "")
}

// At gives the pod an address, which it has before its training begins.
func (b *PodBuilder) At(address string) *PodBuilder {
	b.pod.Status.PodIP = address
	return b
}

func (b *PodBuilder) init(name string, state corev1.ContainerState) *PodBuilder {
	b.pod.Status.InitContainerStatuses = append(b.pod.Status.InitContainerStatuses,
		corev1.ContainerStatus{Name: name, Image: "agent:1", State: state})
	return b
}

// Outlived has a container go on that a webhook has added, so that the kubelet reports no end of the pod.
func (b *PodBuilder) Outlived() *PodBuilder {
	b.pod.Status.Phase = corev1.PodRunning
	b.pod.Status.ContainerStatuses = append(b.pod.Status.ContainerStatuses, corev1.ContainerStatus{
		Name: "proxy", Image: "proxy:1", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(Noon)}},
	})
	return b
}

func (b *PodBuilder) container(state corev1.ContainerState) {
	b.pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "trainer", Image: "trainer:1", State: state}}
}

func (b *PodBuilder) ended() *corev1.ContainerStateTerminated {
	return b.pod.Status.ContainerStatuses[0].State.Terminated
}

func (b *PodBuilder) condition(kind corev1.PodConditionType, status corev1.ConditionStatus, reason, message string) *PodBuilder {
	b.pod.Status.Conditions = slices.DeleteFunc(b.pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
	b.pod.Status.Conditions = append(b.pod.Status.Conditions, corev1.PodCondition{
		Type: kind, Status: status, Reason: reason, Message: message,
	})
	return b
}
