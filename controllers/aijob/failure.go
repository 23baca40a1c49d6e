package aijob

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/internal/podloss"
	"github.com/dcnlab/spot-training-operator/internal/redact"
)

// consequence is what becomes of a job after the end of a try.
type consequence int

const (
	// counted failures are retried as often as retryPolicy allows.
	counted consequence = iota
	// hopeless ones are not: no further try would end differently.
	hopeless
	// lost tries are queued again at once, and do not count: the program did nothing wrong.
	lost
	// refused ones are queued again after a pause, and do not count: something in the cluster stands in the way.
	refused
)

// failure is what ended a try.
type failure struct {
	kind            consequence
	reason, message string
	exitCode        *int32
}

const (
	// exitPeerLost is what a member ends with that lost another (EX_TEMPFAIL).
	exitPeerLost = 75
	// exitTerminated is 128 + SIGTERM, exitKilled 128 + SIGKILL.
	exitTerminated, exitKilled = 143, 137
	// firstSignalCode is where exit codes begin that stand for a signal, by the convention of shells.
	firstSignalCode = 128
	// causeDelay is how much later than its consequences the cause of a failure may be seen.
	causeDelay = 3 * time.Second
	// maxWords bounds what is told of a container's last words, in characters.
	maxWords = 1024
)

// losses are the ways in which a pod can be lost, by the reasons of package podloss.
var losses = map[string]struct{ reason, how string }{
	mlv1.ReasonPreempted:     {aiplatformv1alpha1.ReasonPodPreempted, "lost its place to a pod of higher priority"},
	mlv1.ReasonEvicted:       {aiplatformv1alpha1.ReasonEvicted, "was evicted through the API, as kubectl drain does"},
	mlv1.ReasonNodeLost:      {aiplatformv1alpha1.ReasonNodeLost, "was lost with its node"},
	mlv1.ReasonNodeShutdown:  {aiplatformv1alpha1.ReasonNodeShutdown, "was stopped because its node was shut down"},
	mlv1.ReasonNodePressure:  {aiplatformv1alpha1.ReasonNodePressure, "was evicted by the kubelet of its node, which was short of a resource"},
	mlv1.ReasonNodeTainted:   {aiplatformv1alpha1.ReasonNodeTainted, "had to leave its node, which got a taint with the effect NoExecute"},
	mlv1.ReasonNodePreempted: {aiplatformv1alpha1.ReasonNodeLost, "had to leave its node, which its provider takes back"},
	mlv1.ReasonNodeRefused:   {aiplatformv1alpha1.ReasonNodeRefused, "was refused by the kubelet of its node"},
}

// findFailure says what ended the try; nil when nothing has. Members that only followed, because another was gone or because they
// were stopped then, are not what is looked for.
func findFailure(pods []*corev1.Pod) *failure {
	var failed []*corev1.Pod
	for _, pod := range pods {
		if pod != nil && hasFailed(pod) {
			failed = append(failed, pod)
		}
	}
	if len(failed) == 0 {
		return nil
	}
	first := slices.MinFunc(failed, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), endOf(a).Compare(endOf(b)), cmp.Compare(a.Name, b.Name))
	})
	return podFailure(first)
}

// causeMayFollow is how long to wait for the end of another member before those that lost a peer are judged; 0 for not at all.
func causeMayFollow(now time.Time, pods []*corev1.Pod) time.Duration {
	var wait time.Duration
	ended := 0
	for _, pod := range pods {
		if pod == nil || !hasFailed(pod) {
			continue
		}
		if lossReason(pod) != "" || exitCode(pod) != exitPeerLost {
			return 0
		}
		ended++
		wait = max(wait, endOf(pod).Add(causeDelay).Sub(now))
	}
	if ended == 0 || ended == len(pods) {
		return 0
	}
	return wait
}

// rank orders failed pods by how likely each is the cause of the others.
func rank(pod *corev1.Pod) int {
	switch code := exitCode(pod); {
	case lossReason(pod) != "":
		return 0
	case code == exitPeerLost:
		return 3
	case wasDeleted(pod), code == exitTerminated:
		return 2
	}
	return 1
}

// hasFailed says whether the pod failed or is being taken away without having succeeded.
func hasFailed(pod *corev1.Pod) bool {
	if pod.Status.Phase == corev1.PodFailed {
		return true
	}
	return pod.DeletionTimestamp != nil && pod.Status.Phase != corev1.PodSucceeded
}

// podFailure says how a pod failed or was lost.
func podFailure(pod *corev1.Pod) *failure {
	who := podInWords(pod)
	ended := terminated(pod)
	if reason, detail := podloss.Of(pod, ended != nil); reason != "" {
		known, ok := losses[reason]
		if !ok {
			known.reason, known.how = aiplatformv1alpha1.ReasonDisrupted, "was lost"
		}
		return lossOf(known.reason, who+" "+known.how+withDetail(detail))
	}
	// A pod that was deleted by hand ends on its signals: that is not the program's doing.
	if wasDeleted(pod) && (ended == nil || slices.Contains([]int32{0, exitTerminated, exitKilled}, ended.ExitCode)) {
		return lossOf(aiplatformv1alpha1.ReasonPodDeleted, who+" was deleted")
	}
	if podloss.OverStorageLimit(pod) {
		return &failure{
			reason: aiplatformv1alpha1.ReasonStorageLimitExceeded,
			message: who + " was evicted for what it wrote to its node" + withDetail(pod.Status.Message) +
				"; raise spec.resources.limits.ephemeral-storage",
		}
	}
	if ended == nil || ended.ExitCode == 0 {
		why := cmp.Or(strings.TrimSpace(pod.Status.Reason+" "+pod.Status.Message), "no container ended")
		return &failure{reason: aiplatformv1alpha1.ReasonProgramFailed, message: redact.Text(who + " failed: " + why)}
	}
	reason, how, remedy := endOfContainer(ended)
	return &failure{reason: reason, message: redact.Text(who + " " + how + lastWords(ended) + remedy), exitCode: ptr.To(ended.ExitCode)}
}

func lossOf(reason, message string) *failure {
	return &failure{kind: lost, reason: reason, message: redact.Text(message)}
}

func podInWords(pod *corev1.Pod) string {
	if pod.Spec.NodeName == "" {
		return "pod " + pod.Name
	}
	return fmt.Sprintf("pod %s on node %s", pod.Name, pod.Spec.NodeName)
}

func withDetail(detail string) string {
	if detail = strings.TrimSpace(detail); detail == "" {
		return ""
	}
	return ": " + detail
}

// endOfContainer classifies an exit code other than 0.
func endOfContainer(ended *corev1.ContainerStateTerminated) (reason, how, remedy string) {
	code := ended.ExitCode
	switch {
	case ended.Reason == "OOMKilled":
		return aiplatformv1alpha1.ReasonOutOfMemory, fmt.Sprintf("was killed for using more memory than its limit (exit code %d)", code),
			"; raise spec.resources.limits.memory"
	case ended.Reason == "StartError" || ended.Reason == "ContainerCannotRun":
		return aiplatformv1alpha1.ReasonContainerStartFailed, fmt.Sprintf("could not start its program (exit code %d)", code),
			"; correct spec.command, or spec.image"
	case code == exitPeerLost:
		return aiplatformv1alpha1.ReasonPeerLost, fmt.Sprintf("ended with exit code %d, having lost another member", code), ""
	case code > firstSignalCode:
		return aiplatformv1alpha1.ReasonProgramKilled, fmt.Sprintf("was killed by signal %d (exit code %d)", code-firstSignalCode, code), ""
	}
	return aiplatformv1alpha1.ReasonProgramFailed, fmt.Sprintf("ended with exit code %d", code), ""
}

// lastWords is what a container said when it ended, or its last log lines.
func lastWords(ended *corev1.ContainerStateTerminated) string {
	words := strings.TrimSpace(ended.Message)
	if outputs := parseOutputs(words); outputs["message"] != "" {
		words = outputs["message"]
	}
	if words == "" {
		return ""
	}
	if runes := []rune(words); len(runes) > maxWords {
		words = "... " + string(runes[len(runes)-maxWords:])
	}
	return ": " + words
}

func lossReason(pod *corev1.Pod) string {
	reason, _ := podloss.Of(pod, terminated(pod) != nil)
	return reason
}

func terminated(pod *corev1.Pod) *corev1.ContainerStateTerminated {
	for i := range pod.Status.ContainerStatuses {
		if status := &pod.Status.ContainerStatuses[i]; status.Name == container {
			return status.State.Terminated
		}
	}
	return nil
}

func exitCode(pod *corev1.Pod) int32 {
	if ended := terminated(pod); ended != nil {
		return ended.ExitCode
	}
	return 0
}

// wasDeleted says whether the pod was deleted before it ended by itself.
func wasDeleted(pod *corev1.Pod) bool {
	if pod.DeletionTimestamp == nil {
		return false
	}
	ended := terminated(pod)
	return ended == nil || !ended.FinishedAt.Time.Before(deletedAt(pod))
}

// deletedAt is when the deletion of a pod was asked for; its timestamp is when its grace period ends.
func deletedAt(pod *corev1.Pod) time.Time {
	return pod.DeletionTimestamp.Add(-time.Duration(ptr.Deref(pod.DeletionGracePeriodSeconds, 0)) * time.Second)
}

// endOf is when the end of a pod began.
func endOf(pod *corev1.Pod) time.Time {
	if wasDeleted(pod) {
		return deletedAt(pod)
	}
	if ended := terminated(pod); ended != nil {
		return ended.FinishedAt.Time
	}
	return pod.CreationTimestamp.Time
}

// podEnded says whether a pod runs no more and holds nothing.
func podEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
