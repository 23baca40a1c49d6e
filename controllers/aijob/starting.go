package aijob

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/redact"
)

// How long pods may take to start (docs/guide/platform-jobs.md).
const (
	// bindPatience is for being bound to the node: kube-scheduler has nothing to choose, so that one that is not bound was
	// overtaken by somebody else's pod.
	bindPatience = time.Minute
	// configPatience is for what a container needs, as a Secret, to appear.
	configPatience = 2 * time.Minute
	// pullPatience is for an image that cannot be pulled.
	pullPatience = 5 * time.Minute
	// startPatience is for all together: large images take long.
	startPatience = 30 * time.Minute
)

// obstacle is what keeps a pod from starting.
type obstacle struct {
	// end of the try, if it is so at due.
	end *failure
	due time.Time
	// now says what is wrong until then; empty when nothing is known to be.
	now string
}

// obstacleOf is what keeps a pod from starting. Since is when the job was given its place.
func obstacleOf(pod *corev1.Pod, since time.Time) obstacle {
	if made := pod.CreationTimestamp.Time; made.After(since) {
		since = made
	}
	who := podInWords(pod)
	if pod.Spec.NodeName == "" {
		why := ""
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
				why = withDetail(condition.Message)
			}
		}
		message := fmt.Sprintf("%s was not placed on its node within %s%s", who, bindPatience, why)
		return obstacle{end: lossOf(aiplatformv1alpha1.ReasonPodsNotPlaced, message), due: since.Add(bindPatience)}
	}
	if waiting := waitingOf(pod); waiting != nil {
		detail := withDetail(waiting.Message)
		switch waiting.Reason {
		case "InvalidImageName":
			message := who + " cannot start, because spec.image is no name of an image" + detail
			return obstacle{end: &failure{kind: hopeless, reason: aiplatformv1alpha1.ReasonInvalidImageName, message: redact.Text(message)}, due: since}
		case "CreateContainerConfigError":
			return hindrance(&failure{kind: hopeless, reason: aiplatformv1alpha1.ReasonContainerConfigError},
				who+" lacks what its container needs", detail+"; it starts once that exists", since, configPatience)
		case "CreateContainerError", "RunContainerError":
			return hindrance(&failure{kind: counted, reason: aiplatformv1alpha1.ReasonContainerStartFailed},
				who+" cannot start its container", detail, since, configPatience)
		case "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "RegistryUnavailable", "ImageInspectError":
			return hindrance(&failure{kind: counted, reason: aiplatformv1alpha1.ReasonImagePullFailed}, who+" cannot pull image "+image(pod), detail+
				"; use another spec.image in a new AIJob, or add the registry's imagePullSecret to the ServiceAccount", since, pullPatience)
		}
	}
	message := fmt.Sprintf("%s did not start within %s", who, startPatience)
	return obstacle{end: lossOf(aiplatformv1alpha1.ReasonPodsNotStarted, message), due: since.Add(startPatience)}
}

// hindrance is an obstacle that somebody can remove in time.
func hindrance(end *failure, what, detail string, since time.Time, patience time.Duration) obstacle {
	due := since.Add(patience)
	fails := "try"
	if end.kind == hopeless {
		fails = "job"
	}
	now := redact.Text(fmt.Sprintf("%s%s; the %s fails if that is so at %s", what, detail, fails, due.UTC().Format("15:04:05Z")))
	end.message = redact.Text(fmt.Sprintf("%s, for %s%s", what, patience, detail))
	return obstacle{end: end, due: due, now: now}
}

// hindered tells what keeps a job's pods from starting, as long as something does.
func (p *planner) hindered(status *aiplatformv1alpha1.AIJobStatus, by *obstacle) {
	switch {
	case by != nil:
		status.Reason, status.Message = by.end.reason, by.now
	case status.Reason != aiplatformv1alpha1.ReasonAdmitted:
		status.Reason, status.Message = aiplatformv1alpha1.ReasonAdmitted, startingInWords(placementOf(status))
	}
}

// startingInWords says that pods are being started on these nodes.
func startingInWords(nodes []string) string {
	if len(nodes) == 1 {
		return "the pod is being started on node " + nodes[0]
	}
	return fmt.Sprintf("%d pods are being started together on %d nodes", len(nodes), len(assignmentsOf(nodes)))
}

// missing says when a pod that cannot be made, as when its creation fails again and again, ends the try. Before that it is looked for
// where the cache does not see.
func (p *planner) missing(since time.Time) obstacle {
	if due := since.Add(bindPatience); p.now.Before(due) {
		p.lookAgainAt(due)
	}
	message := fmt.Sprintf("not all pods could be made within %s", startPatience)
	return obstacle{end: lossOf(aiplatformv1alpha1.ReasonPodsNotStarted, message), due: since.Add(startPatience)}
}

func waitingOf(pod *corev1.Pod) *corev1.ContainerStateWaiting {
	for i := range pod.Status.ContainerStatuses {
		if status := &pod.Status.ContainerStatuses[i]; status.Name == container {
			return status.State.Waiting
		}
	}
	return nil
}

// image that a pod was to run. The cache keeps it in the status only.
func image(pod *corev1.Pod) string {
	for i := range pod.Status.ContainerStatuses {
		if status := &pod.Status.ContainerStatuses[i]; status.Name == container {
			return strings.TrimSpace(status.Image)
		}
	}
	return ""
}

// started says whether a pod's container runs or has run.
func started(pod *corev1.Pod) bool { return pod.Status.Phase != corev1.PodPending }
