package workerpool

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
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

// condition is WorkersReady as it should be.
func condition(o observed, state metav1.ConditionStatus, reason, message string) *metav1.Condition {
	list := slices.Clone(o.queue.Status.Conditions)
	reporting.Set(&list, o.queue.Generation, o.now, reasons.ConditionWorkersReady, state, reason, message)
	return meta.FindStatusCondition(list, reasons.ConditionWorkersReady)
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
	if reason, why := findObstacle(o.pods); reason != "" {
		return metav1.ConditionFalse, reason, count + ": " + why
	}
	return metav1.ConditionFalse, reasons.WorkersStarting, count + "; the others are being started."
}

// obstacles are the reasons why workers do not become ready, those first that tell more of what a user must correct.
var obstacles = []string{reasons.ImagePullFailed, reasons.WorkersFailing, reasons.Unschedulable}

// findObstacle is what keeps the pods from becoming ready: the first of obstacles that one of them has, as the pod that comes first by name
// tells it, so that the same pods give the same message.
func findObstacle(pods []*corev1.Pod) (reason, message string) {
	first := len(obstacles)
	for _, pod := range slices.SortedFunc(slices.Values(pods), func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) }) {
		is, why := obstacleOf(pod)
		if at := slices.Index(obstacles, is); at >= 0 && at < first && pod.DeletionTimestamp == nil {
			first, reason, message = at, is, why
		}
	}
	return reason, message
}

func obstacleOf(pod *corev1.Pod) (reason, message string) {
	found := podend.ObstacleOf(pod)
	if found == nil {
		return "", ""
	}
	switch found.Reason {
	case reasons.Unschedulable:
		return found.Reason, found.Detail
	case reasons.ImagePullFailed, reasons.InvalidImageName:
		return reasons.ImagePullFailed, fmt.Sprintf("image %s cannot be pulled%s", found.Image, podend.Suffix(found.Detail))
	case podend.ContainerCrashing:
		return reasons.WorkersFailing, fmt.Sprintf("the worker crashes repeatedly%s: see the log of pod %s/%s",
			lastEnd(pod, found.Container), pod.Namespace, pod.Name)
	}
	return reasons.WorkersFailing, "the worker cannot be started" + podend.Suffix(found.Detail)
}

// lastEnd says how a container last ended.
func lastEnd(pod *corev1.Pod, container string) string {
	for _, status := range pod.Status.ContainerStatuses {
		if last := status.LastTerminationState.Terminated; last != nil && status.Name == container {
			text := fmt.Sprintf(", last with exit code %d", last.ExitCode)
			if last.Reason != "" && last.Reason != "Error" {
				text += " (" + last.Reason + ")"
			}
			return text
		}
	}
	return ""
}
