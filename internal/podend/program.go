// Package podend tells from the status of a pod why it ended, was lost or does not start. A pod is lost when something outside of its
// program ends it: an eviction, a preemption or the end of its node. That is no failure of the program, and does not happen again on
// another node.
package podend

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// Exit codes with a meaning of their own.
const (
	// ExitPeerLost is what a member of a group ends with that lost contact to another (EX_TEMPFAIL of sysexits.h).
	ExitPeerLost = 75
	// FirstSignalCode is where exit codes begin that stand for a signal, by the convention of shells.
	FirstSignalCode = 128
	// ExitKilled is 128 + SIGKILL.
	ExitKilled = 137
	// exitUnknown is what containerd says of a container whose process it no longer finds.
	exitUnknown = 255
	// ExitTerminated is 128 + SIGTERM.
	ExitTerminated = 143
)

// Program describes the container in which a pod's program runs. Other containers of the pod only serve it.
type Program struct {
	// Container is its name.
	Container string
	// Remedies say by reason what a user can do.
	Remedies map[string]string
	// LastWords selects from a termination message what is repeated; nil: all of it.
	LastWords func(message string) string
}

// Terminated is how the program ended; nil when it has not.
func (p *Program) Terminated(pod *corev1.Pod) *corev1.ContainerStateTerminated {
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if status.Name == p.Container {
			return status.State.Terminated
		}
	}
	return nil
}

// ExitCode of the program; 0 as long as it has not ended.
func (p *Program) ExitCode(pod *corev1.Pod) int32 {
	if ended := p.Terminated(pod); ended != nil {
		return ended.ExitCode
	}
	return 0
}

// clockSlack is how far the clock of a node may be behind that of the API server.
const clockSlack = 5 * time.Second

// WasDeleted says whether the pod was deleted before its program ended by itself. One that ended on SIGTERM is taken for that also when the
// clock of its node says that it ended a little before.
func (p *Program) WasDeleted(pod *corev1.Pod) bool {
	if pod.DeletionTimestamp == nil {
		return false
	}
	ended := p.Terminated(pod)
	if ended == nil {
		return true
	}
	at := ended.FinishedAt.Time
	if ended.ExitCode == ExitTerminated {
		at = at.Add(clockSlack)
	}
	return !at.Before(deletedAt(pod))
}

// deletedAt is when the deletion of a pod was requested; its timestamp is when its grace period ends.
func deletedAt(pod *corev1.Pod) time.Time {
	return pod.DeletionTimestamp.Add(-time.Duration(ptr.Deref(pod.DeletionGracePeriodSeconds, 0)) * time.Second)
}

// EndTime is when the end of a pod began.
func (p *Program) EndTime(pod *corev1.Pod) time.Time {
	if p.WasDeleted(pod) {
		return deletedAt(pod)
	}
	if ended := p.Terminated(pod); ended != nil {
		return ended.FinishedAt.Time
	}
	return pod.CreationTimestamp.Time
}

// IsEnded says whether a pod has ended and uses no more resources.
func IsEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// HasFailed says whether a pod failed or is being deleted without having succeeded.
func HasFailed(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.DeletionTimestamp != nil && pod.Status.Phase != corev1.PodSucceeded
}

// FailedOf are the pods that failed; nil entries are passed over.
func FailedOf(pods []*corev1.Pod) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool { return pod == nil || !HasFailed(pod) })
}

// InWords names a pod and its node.
func InWords(pod *corev1.Pod) string {
	if pod.Spec.NodeName == "" {
		return "pod " + pod.Name
	}
	return "pod " + pod.Name + " on node " + pod.Spec.NodeName
}

// Suffix formats a text as the end of a message, after a colon; empty for no text.
func Suffix(text string) string {
	if text = strings.TrimSpace(text); text == "" {
		return ""
	}
	return ": " + text
}

// InitState is the state of an init container; empty for a pod without one, and before its kubelet has told.
func InitState(pod *corev1.Pod, container string) corev1.ContainerState {
	for i := range pod.Status.InitContainerStatuses {
		if status := &pod.Status.InitContainerStatuses[i]; status.Name == container {
			return status.State
		}
	}
	return corev1.ContainerState{}
}
