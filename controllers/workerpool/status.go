package workerpool

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
)

// status says how the workers are. Before the job service was asked there is nothing to say.
func status(o observed, existing *appsv1.Deployment, replicas int32) poolStatus {
	if !o.answer.asked {
		return poolStatus{}
	}
	workers := &aiplatformv1alpha1.WorkerPoolStatus{
		Replicas: replicas, WaitingTasks: o.answer.figures.Waiting, RunningTasks: o.answer.figures.Running,
	}
	if existing != nil {
		workers.Ready = existing.Status.ReadyReplicas
	}
	state, reason, message := judge(o, existing, replicas)
	return poolStatus{workers: workers, condition: condition(o, state, reason, message)}
}

// condition that others than this package's plan may need, too: an error of the API server's is one.
func condition(o observed, state metav1.ConditionStatus, reason, message string) *metav1.Condition {
	c := &metav1.Condition{
		Type: reasons.ConditionWorkersReady, Status: state, Reason: reason, Message: message,
		ObservedGeneration: o.queue.Generation, LastTransitionTime: metav1.NewTime(o.now.Truncate(1e9)),
	}
	for _, before := range o.queue.Status.Conditions {
		if before.Type == c.Type && before.Status == c.Status {
			c.LastTransitionTime = before.LastTransitionTime
		}
	}
	return c
}

func judge(o observed, existing *appsv1.Deployment, replicas int32) (state metav1.ConditionStatus, reason, message string) {
	if o.answer.problem != "" {
		return metav1.ConditionFalse, reasons.JobServiceUnreachable, fmt.Sprintf(
			"The job service does not say how many tasks wait, so the number of workers stays %d: %s", replicas, o.answer.problem)
	}
	if replicas == 0 {
		return metav1.ConditionTrue, reasons.ScaledToZero, "No task waits or runs: there is no worker."
	}
	var ready int32
	if existing != nil {
		ready = existing.Status.ReadyReplicas
	}
	if ready >= replicas {
		return metav1.ConditionTrue, reasons.WorkersReady, fmt.Sprintf("All of %d workers are ready.", replicas)
	}
	if existing != nil {
		for _, c := range existing.Status.Conditions {
			if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
				return metav1.ConditionFalse, reasons.PodCreationFailed, "The cluster refuses pods of the workers: " + c.Message
			}
		}
	}
	count := fmt.Sprintf("%d of %d workers are ready", ready, replicas)
	if reason, why := trouble(o.pods); reason != "" {
		return metav1.ConditionFalse, reason, count + ": " + why
	}
	return metav1.ConditionFalse, reasons.WorkersStarting, count + "; the others are being started."
}

// troubles by how much they tell of what somebody must mend.
var troubles = []string{
	reasons.ImagePullFailed, reasons.WorkersFailing, reasons.Unschedulable,
}

// trouble is what keeps the pods from being ready: the first of troubles that one of them has, in the words of the pod that comes
// first by name, so that the same pods give the same words.
func trouble(pods []corev1.Pod) (reason, message string) {
	found := map[string]string{}
	pods = slices.Clone(pods)
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	for i := range pods {
		if pods[i].DeletionTimestamp != nil {
			continue
		}
		if reason, message := troubleOf(&pods[i]); reason != "" && found[reason] == "" {
			found[reason] = message
		}
	}
	for _, reason := range troubles {
		if message, ok := found[reason]; ok {
			return reason, message
		}
	}
	return "", ""
}

func troubleOf(pod *corev1.Pod) (reason, message string) {
	for _, c := range pod.Status.ContainerStatuses {
		waiting := c.State.Waiting
		if waiting == nil {
			continue
		}
		switch waiting.Reason {
		case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable", "ImageInspectError":
			return reasons.ImagePullFailed, fmt.Sprintf("the image %s cannot be pulled (%s)", c.Image, waiting.Reason)
		case "CrashLoopBackOff":
			return reasons.WorkersFailing, "the worker ends again and again" + lastWords(c.LastTerminationState.Terminated) +
				": see the log of pod " + pod.Namespace + "/" + pod.Name
		case "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
			return reasons.WorkersFailing, fmt.Sprintf("the worker cannot be started (%s): %s", waiting.Reason, waiting.Message)
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			return reasons.Unschedulable, c.Message
		}
	}
	return "", ""
}

func lastWords(t *corev1.ContainerStateTerminated) string {
	if t == nil {
		return ""
	}
	words := fmt.Sprintf(", last with exit code %d", t.ExitCode)
	if t.Reason != "" && t.Reason != "Error" {
		words += " (" + t.Reason + ")"
	}
	return words
}
