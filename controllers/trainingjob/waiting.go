package trainingjob

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/internal/checkpoint/report"
)

// podCreation is how long the Job controller takes at the most to create its pods, unless it is not allowed to.
const podCreation = 10 * time.Second

// scheduling is how long a pod may be refused by the scheduler before it is told.
const scheduling = 3 * time.Second

// waitingFor says why not all workers run.
func waitingFor(o observed, d *desired, pods []*corev1.Pod) (reason, message string) {
	for _, pod := range pods {
		if left := unsettled(o.now, pod); left > 0 {
			d.lookAgain(left)
			continue
		}
		if reason, message := stuck(pod); reason != "" {
			return waitingForInstance(o, reason, message)
		}
	}
	if lacksPods(o, pods) {
		if left := startedAt(o.workers).Add(podCreation).Sub(o.now); left > 0 {
			d.lookAgain(left) // nothing else tells that no pod came
		} else {
			if o.creationRefused == "" {
				d.lookAgain(podCreation)
			}
			return refusedPods(o, len(pods))
		}
	}
	if reason, message := restoring(o); reason != "" {
		return reason, message
	}
	return mlv1.ReasonWorkersStarting, fmt.Sprintf("%d of %d workers run", d.status.Workers.Active, d.status.Workers.Total)
}

// unsettled is how long to wait until the scheduler's word about a pod is worth telling: a pod whose claim is being
// provisioned fits nowhere for a moment. 0 for a pod that the scheduler does not refuse, or has refused for longer.
func unsettled(now time.Time, pod *corev1.Pod) time.Duration {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return condition.LastTransitionTime.Add(scheduling).Sub(now)
		}
	}
	return 0
}

// stuck says why a pod does not start; empty when nothing is known to be wrong.
func stuck(pod *corev1.Pod) (reason, message string) {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse && condition.Reason == corev1.PodReasonUnschedulable {
			return mlv1.ReasonUnschedulable, fmt.Sprintf(
				"pod %s fits on no node: %s; lower spec.resources, widen spec.scheduling, or add nodes", pod.Name, strings.TrimSuffix(condition.Message, "."))
		}
	}
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if status.State.Waiting == nil {
			continue
		}
		waiting := status.State.Waiting
		switch waiting.Reason {
		case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError":
			if status.Name == tensorBoardContainer {
				return mlv1.ReasonImagePullFailed, fmt.Sprintf(
					"pod %s cannot pull image %s of TensorBoard: %s; correct spec.monitoring.tensorboardImage, or do without tensorboardEnabled",
					pod.Name, status.Image, waiting.Message)
			}
			if status.Name == report.AgentContainer || status.Name == report.RestoreContainer {
				return mlv1.ReasonImagePullFailed, fmt.Sprintf(
					"pod %s cannot pull image %s of the checkpoint agent: %s; name a Secret for its registry in spec.imagePullSecrets, or correct --agent-image of the operator",
					pod.Name, status.Image, waiting.Message)
			}
			return mlv1.ReasonImagePullFailed, fmt.Sprintf(
				"pod %s cannot pull image %s: %s; correct spec.image, or name a Secret for its registry in spec.imagePullSecrets",
				pod.Name, status.Image, waiting.Message)
		case "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
			return mlv1.ReasonContainerConfigError, fmt.Sprintf(
				"pod %s cannot start its container: %s; once what it misses exists in namespace %s it starts by itself",
				pod.Name, waiting.Message, pod.Namespace)
		}
	}
	return "", ""
}

// lacksPods says whether the Job should have more pods than it has.
func lacksPods(o observed, pods []*corev1.Pod) bool {
	return o.workers != nil && len(pods) < int(ptr.Deref(o.workers.Spec.Completions, 0))
}

// refusedPods says why the Job controller does not create all pods.
func refusedPods(o observed, exist int) (reason, message string) {
	count := fmt.Sprintf("%d of %d pods could not be created", o.job.Spec.NumWorkers-int32(exist), o.job.Spec.NumWorkers)
	why := strings.TrimPrefix(o.creationRefused, "Error creating: ")
	switch {
	case why == "":
		return mlv1.ReasonPodCreationFailed, fmt.Sprintf(
			"%s: see the events of the Job, kubectl describe job %s -n %s", count, o.workers.Name, o.job.Namespace)
	case strings.Contains(why, "exceeded quota"):
		return mlv1.ReasonQuotaExceeded, fmt.Sprintf("%s: %s; free or raise the quota, or lower spec.numWorkers or spec.resources", count, why)
	case strings.Contains(why, "violates PodSecurity"):
		return mlv1.ReasonPodSecurityViolated, fmt.Sprintf("%s: %s; correct spec.securityContext, or use another namespace", count, why)
	}
	return mlv1.ReasonPodCreationFailed, count + ": " + why
}

// observeRefusal reads why the Job controller does not create the pods of a Job that has been there for a while.
func (r *Reconciler) observeRefusal(ctx context.Context, o *observed) error {
	if finished(&o.job.Status) || o.workers == nil || ptr.Deref(o.workers.Spec.Suspend, false) || o.job.Status.State == mlv1.StateRunning ||
		!lacksPods(*o, sinceAdmission(o.workers, o.podsOf(o.workers.UID))) || o.now.Before(startedAt(o.workers).Add(podCreation)) {
		return nil
	}
	var events corev1.EventList
	err := r.Direct.List(ctx, &events, client.InNamespace(o.job.Namespace),
		client.MatchingFields{"involvedObject.uid": string(o.workers.UID), "reason": "FailedCreate"})
	if err != nil {
		return fmt.Errorf("list the events of Job %s: %w", o.workers.Name, err)
	}
	var newest time.Time
	for _, event := range events.Items {
		if at := lastSeen(&event); !at.Before(newest) {
			newest, o.creationRefused = at, event.Message
		}
	}
	return nil
}

// lastSeen is when an event last happened, which old and new recorders say in different fields.
func lastSeen(event *corev1.Event) time.Time {
	if event.Series != nil {
		return event.Series.LastObservedTime.Time
	}
	if !event.LastTimestamp.IsZero() {
		return event.LastTimestamp.Time
	}
	return event.EventTime.Time
}
