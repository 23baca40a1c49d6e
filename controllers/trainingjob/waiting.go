package trainingjob

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/child"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/internal/source"
	"github.com/dcnlab/spot-training-operator/internal/training/preflight"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/report"
)

// podCreation is how long the Job controller takes at most to create its pods, unless it is not allowed to.
const podCreation = 10 * time.Second

// scheduling is how long a pod may be refused by the scheduler before it is told.
const scheduling = 3 * time.Second

// describeWaiting says why not all workers run.
func (p *planner) describeWaiting(pods []*corev1.Pod) (reason, message string) {
	if reason, message := p.describeMissing(pods); reason != "" {
		return reason, message
	}
	if p.lacksPods(pods) {
		if left := startedAt(p.workers).Add(podCreation).Sub(p.now); left > 0 {
			p.lookAgain(left) // nothing else tells that no pod came
		} else {
			if p.creationRefused == "" {
				p.lookAgain(podCreation)
			}
			return p.refusedPods(len(pods))
		}
	}
	if reason, message := p.fetching(pods); reason != "" {
		return reason, message
	}
	if reason, message := p.checkingNetwork(pods); reason != "" {
		return reason, message
	}
	if reason, message := p.restoring(); reason != "" {
		return reason, message
	}
	return reasons.WorkersStarting, fmt.Sprintf("%d of %d workers run", p.status.Workers.Active, p.status.Workers.Total)
}

// describeMissing says why a worker that is missing does not start; empty when nothing is known to be wrong.
func (p *planner) describeMissing(pods []*corev1.Pod) (reason, message string) {
	for _, pod := range pods {
		if left := settlingTime(p.now, pod); left > 0 {
			p.lookAgain(left)
		} else if reason, message := describeObstacle(pod); reason != "" {
			return p.waitingForInstance(reason, message)
		}
	}
	return "", ""
}

// settlingTime is how long to wait until the scheduler's answer about a pod, or its silence, is worth telling: a pod whose claim is being
// provisioned fits on no node for a moment. 0 for a pod that has a node, or has waited for longer.
func settlingTime(now time.Time, pod *corev1.Pod) time.Duration {
	if refused := podend.SchedulingRefused(pod); refused != nil {
		return min(refused.LastTransitionTime.Add(scheduling).Sub(now), scheduling) // the clock of the scheduler may be ahead
	}
	if due := podend.SchedulerDue(pod); !due.IsZero() {
		return due.Sub(now)
	}
	return 0
}

// describeObstacle says why a pod does not start whose settling time is over; empty when nothing is known to be wrong.
func describeObstacle(pod *corev1.Pod) (reason, message string) {
	found := podend.ObstacleOf(pod)
	if found == nil && !podend.SchedulerDue(pod).IsZero() {
		return reasons.SchedulerSilent, fmt.Sprintf("pod %s: %s, or correct spec.scheduling.schedulerName", pod.Name, podend.SilentScheduler(pod))
	}
	if found == nil {
		return "", ""
	}
	image := found.Image
	if found.Container != build.WorkerContainer {
		image += " of container " + found.Container
	}
	switch found.Reason {
	case reasons.Unschedulable:
		message = fmt.Sprintf("pod %s fits on no node%s; lower spec.resources, widen spec.scheduling, or add nodes", pod.Name, podend.Suffix(found.Detail))
	case reasons.InvalidImageName:
		message = fmt.Sprintf("pod %s: image %s is not a valid image reference%s; %s", pod.Name, image, podend.Suffix(found.Detail), imageRemedy(found))
	case reasons.ImagePullFailed:
		message = fmt.Sprintf("pod %s cannot pull image %s%s; %s", pod.Name, image, podend.Suffix(found.Detail), imageRemedy(found))
	case reasons.ContainerConfigError, reasons.ContainerStartFailed:
		message = fmt.Sprintf("pod %s cannot start its container%s; once what it lacks exists in namespace %s it starts by itself",
			pod.Name, podend.Suffix(found.Detail), pod.Namespace)
	default:
		return "", ""
	}
	return found.Reason, message
}

// imageRemedy says which setting names the image of a container.
func imageRemedy(found *podend.Obstacle) string {
	switch found.Container {
	case build.TensorBoardContainer:
		return "correct spec.monitoring.tensorboardImage, or turn off spec.monitoring.tensorboardEnabled"
	case report.AgentContainer, report.RestoreContainer, preflight.Container, source.Container:
		return "name a Secret for its registry in spec.imagePullSecrets, or correct --agent-image of the operator"
	}
	return "correct spec.image, or name a Secret for its registry in spec.imagePullSecrets"
}

// lacksPods says whether the Job should have more pods than it has.
func (o *observed) lacksPods(pods []*corev1.Pod) bool {
	return o.workers != nil && len(pods) < int(ptr.Deref(o.workers.Spec.Completions, 0))
}

// refusedPods says why the Job controller does not create all pods.
func (o *observed) refusedPods(exist int) (reason, message string) {
	count := fmt.Sprintf("%d of %d pods could not be created", o.job.Spec.NumWorkers-int32(exist), o.job.Spec.NumWorkers)
	why := strings.TrimPrefix(o.creationRefused, "Error creating: ")
	if why == "" {
		return reasons.PodCreationFailed, fmt.Sprintf(
			"%s: see the events of the Job, kubectl describe job %s -n %s", count, o.workers.Name, o.job.Namespace)
	}
	reason, remedy := child.Forbidden(why, "spec.securityContext")
	return cmp.Or(reason, reasons.PodCreationFailed), count + ": " + why + remedy
}

// observeRefusal reads why the Job controller does not create the pods of a Job that has been there for a while.
func (r *Reconciler) observeRefusal(ctx context.Context, o *observed) (err error) {
	if isFinished(&o.job.Status) || o.workers == nil || ptr.Deref(o.workers.Spec.Suspend, false) || o.job.Status.State == mlv1.StateRunning ||
		!o.lacksPods(sinceAdmission(o.workers, o.workerPods())) || o.now.Before(startedAt(o.workers).Add(podCreation)) {
		return nil
	}
	o.creationRefused, err = r.lastEvent(ctx, o.workers, "FailedCreate")
	return err
}

// lastEvent is the message of the newest event about an object; empty when there is none. An empty reason stands for all.
func (r *Reconciler) lastEvent(ctx context.Context, about client.Object, reason string) (message string, err error) {
	selected := client.MatchingFields{"involvedObject.uid": string(about.GetUID())}
	if reason != "" {
		selected["reason"] = reason
	}
	var events corev1.EventList
	if err := r.Direct.List(ctx, &events, client.InNamespace(about.GetNamespace()), selected); err != nil {
		return "", fmt.Errorf("list the events of %s: %w", about.GetName(), err)
	}
	var newest time.Time
	for _, event := range events.Items {
		if at := lastSeen(&event); !at.Before(newest) {
			newest, message = at, event.Message
		}
	}
	return message, nil
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
