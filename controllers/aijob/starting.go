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

// startTrouble says what keeps a pod from starting, and when that ends the try; zero when nothing does. Since is when the job was
// given its place.
func startTrouble(pod *corev1.Pod, since time.Time) (found *failure, at time.Time) {
	who := podInWords(pod)
	if made := pod.CreationTimestamp.Time; made.After(since) {
		since = made
	}
	if pod.Spec.NodeName == "" {
		why := ""
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
				why = withDetail(condition.Message)
			}
		}
		message := fmt.Sprintf("%s was not placed on its node within %s%s", who, bindPatience, why)
		return &failure{kind: lost, reason: aiplatformv1alpha1.ReasonPodsNotPlaced, message: redact.Text(message)}, since.Add(bindPatience)
	}
	if waiting := waitingOf(pod); waiting != nil {
		tell := func(kind consequence, reason, text string) *failure {
			return &failure{kind: kind, reason: reason, message: redact.Text(who + " " + text + withDetail(waiting.Message))}
		}
		switch waiting.Reason {
		case "InvalidImageName":
			return tell(hopeless, aiplatformv1alpha1.ReasonInvalidImageName, "cannot start, because spec.image is no name of an image"), since
		case "CreateContainerConfigError":
			return tell(hopeless, aiplatformv1alpha1.ReasonContainerConfigError,
				fmt.Sprintf("lacks what its container needs, for %s", configPatience)), since.Add(configPatience)
		case "CreateContainerError", "RunContainerError":
			return tell(counted, aiplatformv1alpha1.ReasonContainerStartFailed, "cannot start its container"), since.Add(configPatience)
		case "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "RegistryUnavailable", "ImageInspectError":
			return tell(counted, aiplatformv1alpha1.ReasonImagePullFailed,
				fmt.Sprintf("could not pull image %s within %s", image(pod), pullPatience)), since.Add(pullPatience)
		}
	}
	message := fmt.Sprintf("%s did not start within %s", who, startPatience)
	return &failure{kind: lost, reason: aiplatformv1alpha1.ReasonPodsNotStarted, message: message}, since.Add(startPatience)
}

// missing says when a pod that cannot be made, as when its creation fails again and again, ends the try. Before that it is looked for
// where the cache does not see.
func (p *planner) missing(since time.Time) (found *failure, at time.Time) {
	if due := since.Add(bindPatience); p.now.Before(due) {
		p.lookAgainAt(due)
	}
	message := fmt.Sprintf("not all pods could be made within %s", startPatience)
	return &failure{kind: lost, reason: aiplatformv1alpha1.ReasonPodsNotStarted, message: message}, since.Add(startPatience)
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
