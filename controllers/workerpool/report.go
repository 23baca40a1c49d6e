package workerpool

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/child"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
)

// report writes this controller's part of the status, and no other: the condition WorkersReady and status.workers. Without workers
// it takes both away. It returns when to look again.
func (r *Reconciler) report(ctx context.Context, o observed, d desired, problem *child.Refusal, m *memory) (again time.Duration, err error) {
	s := d.status
	if problem != nil && o.queue.Spec.Workers != nil {
		reason, message := reasons.PodCreationFailed, "The workers cannot be set up: "+problem.Message
		if problem.Reason == reasons.ObjectConflict {
			reason, message = problem.Reason, problem.Message+"."
		}
		s.condition = condition(o, metav1.ConditionFalse, reason, message)
	}
	write, later := due(o.queue.Status, s, o.queue.Spec.Workers != nil, o.now.Sub(m.reported))
	again = d.again
	if later > 0 {
		again = reconciling.Sooner(again, later)
	}
	if !write {
		return again, nil
	}
	status := map[string]any{}
	if s.workers != nil {
		status["workers"] = s.workers
	}
	if s.condition != nil {
		status["conditions"] = []metav1.Condition{*s.condition}
	}
	content, err := json.Marshal(map[string]any{
		"apiVersion": aiplatformv1alpha1.GroupVersion.String(), "kind": "AIJobQueue",
		"metadata": map[string]any{"name": o.queue.Name, "uid": o.queue.UID}, "status": status,
	})
	if err != nil {
		return again, err
	}
	target := &aiplatformv1alpha1.AIJobQueue{ObjectMeta: metav1.ObjectMeta{Name: o.queue.Name}}
	err = r.Status().Patch(ctx, target, client.RawPatch(types.ApplyPatchType, content), fieldOwner, client.ForceOwnership)
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err): // it is gone, or another of that name
		return again, nil
	case err != nil:
		return again, fmt.Errorf("write the workers' part of the status: %w", err)
	}
	m.reported = o.now
	after := o.queue.Status.Conditions
	if s.condition != nil {
		after = []metav1.Condition{*s.condition}
	}
	reporting.Tell(ctx, nil, o.queue, reporting.Transition{Before: o.queue.Status.Conditions, After: after})
	return again, nil
}

// due says whether the status has to be written now, or when. Figures alone are worth a write each figuresInterval.
func due(before aiplatformv1alpha1.AIJobQueueStatus, s poolStatus, hasWorkers bool, since time.Duration) (now bool, later time.Duration) {
	is := meta.FindStatusCondition(before.Conditions, reasons.ConditionWorkersReady)
	if !hasWorkers {
		return is != nil || before.Workers != nil, 0
	}
	if s.condition == nil { // nothing to say yet
		return false, 0
	}
	// A queue whose job service has never answered has no figures; those that it had stay.
	if s.workers == nil {
		s.workers = before.Workers
	}
	if !equality.Semantic.DeepEqual(is, s.condition) {
		return true, 0
	}
	if equality.Semantic.DeepEqual(before.Workers, s.workers) {
		return false, 0
	}
	if before.Workers == nil || before.Workers.Replicas != s.workers.Replicas || before.Workers.Ready != s.workers.Ready {
		return true, 0
	}
	left := figuresInterval - since
	return left <= 0, max(0, left)
}

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
