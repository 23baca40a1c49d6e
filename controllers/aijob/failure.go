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

// program is the container whose end is that of its pod.
const program = podloss.Program(container)

// exitKilled is 128 + SIGKILL.
const exitKilled = 137

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
	failed := failedOf(pods)
	if len(failed) == 0 {
		return nil
	}
	first := slices.MinFunc(failed, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), program.EndOf(a).Compare(program.EndOf(b)), cmp.Compare(a.Name, b.Name))
	})
	return podFailure(first)
}

// causeMayFollow is how long to wait for the end of another member before those that lost a peer are judged; 0 for not at all.
func causeMayFollow(now time.Time, pods []*corev1.Pod) time.Duration {
	return program.CauseMayFollow(now, failedOf(pods), len(pods))
}

func failedOf(pods []*corev1.Pod) []*corev1.Pod {
	var failed []*corev1.Pod
	for _, pod := range pods {
		if pod != nil && podloss.Failed(pod) {
			failed = append(failed, pod)
		}
	}
	return failed
}

// rank orders failed pods by how likely each is the cause of the others.
func rank(pod *corev1.Pod) int {
	reason, _ := program.Loss(pod)
	switch code := program.ExitCode(pod); {
	case reason != "":
		return 0
	case code == podloss.ExitPeerLost:
		return 3
	case program.WasDeleted(pod), code == podloss.ExitTerminated:
		return 2
	}
	return 1
}

// podFailure says how a pod failed or was lost.
func podFailure(pod *corev1.Pod) *failure {
	who := podInWords(pod)
	ended := program.Terminated(pod)
	if reason, detail := program.Loss(pod); reason != "" {
		known, ok := losses[reason]
		if !ok {
			known.reason, known.how = aiplatformv1alpha1.ReasonDisrupted, "was lost"
		}
		return lossOf(known.reason, who+" "+known.how+withDetail(detail))
	}
	// A pod that was deleted by hand ends on its signals: that is not the program's doing.
	if program.WasDeleted(pod) && (ended == nil || slices.Contains([]int32{0, podloss.ExitTerminated, exitKilled}, ended.ExitCode)) {
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
	case code == podloss.ExitPeerLost:
		return aiplatformv1alpha1.ReasonPeerLost, fmt.Sprintf("ended with exit code %d, having lost another member", code), ""
	case code > podloss.FirstSignalCode:
		return aiplatformv1alpha1.ReasonProgramKilled, fmt.Sprintf("was killed by signal %d (exit code %d)", code-podloss.FirstSignalCode, code), ""
	}
	return aiplatformv1alpha1.ReasonProgramFailed, fmt.Sprintf("ended with exit code %d", code), ""
}

// lastWords is what a container said when it ended, or its last log lines.
func lastWords(ended *corev1.ContainerStateTerminated) string {
	words := strings.TrimSpace(ended.Message)
	if outputs := parseOutputs(words); outputs["message"] != "" {
		words = outputs["message"]
	}
	return podloss.LastWords(words)
}

// podEnded says whether a pod runs no more and holds nothing.
func podEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
