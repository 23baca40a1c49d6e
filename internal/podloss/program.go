package podloss

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

const (
	// ExitPeerLost is what a member of a group ends with that lost another (EX_TEMPFAIL).
	ExitPeerLost = 75
	// ExitTerminated is 128 + SIGTERM.
	ExitTerminated = 143
	// FirstSignalCode is where exit codes begin that stand for a signal, by the convention of shells.
	FirstSignalCode = 128
	// CauseDelay is how much later than its consequences the cause of a failure may be seen.
	CauseDelay = 3 * time.Second

	// longestWords bounds what is told of last words, in characters.
	longestWords = 1024
)

// Failed says whether a pod failed or is being taken away without having succeeded.
func Failed(pod *corev1.Pod) bool {
	if pod.Status.Phase == corev1.PodFailed {
		return true
	}
	return pod.DeletionTimestamp != nil && pod.Status.Phase != corev1.PodSucceeded
}

// Program is the name of the container in which a pod's program runs; other containers only serve it.
type Program string

// Terminated is how the program ended; nil when it has not.
func (p Program) Terminated(pod *corev1.Pod) *corev1.ContainerStateTerminated {
	for i := range pod.Status.ContainerStatuses {
		if status := &pod.Status.ContainerStatuses[i]; status.Name == string(p) {
			return status.State.Terminated
		}
	}
	return nil
}

// ExitCode of the program; 0 as long as it has not ended.
func (p Program) ExitCode(pod *corev1.Pod) int32 {
	if ended := p.Terminated(pod); ended != nil {
		return ended.ExitCode
	}
	return 0
}

// WasDeleted says whether the pod was deleted before its program ended by itself.
func (p Program) WasDeleted(pod *corev1.Pod) bool {
	if pod.DeletionTimestamp == nil {
		return false
	}
	ended := p.Terminated(pod)
	return ended == nil || !ended.FinishedAt.Time.Before(deletedAt(pod))
}

// deletedAt is when the deletion of a pod was asked for; its timestamp is when its grace period ends.
func deletedAt(pod *corev1.Pod) time.Time {
	return pod.DeletionTimestamp.Add(-time.Duration(ptr.Deref(pod.DeletionGracePeriodSeconds, 0)) * time.Second)
}

// EndOf is when the end of a pod began.
func (p Program) EndOf(pod *corev1.Pod) time.Time {
	if p.WasDeleted(pod) {
		return deletedAt(pod)
	}
	if ended := p.Terminated(pod); ended != nil {
		return ended.FinishedAt.Time
	}
	return pod.CreationTimestamp.Time
}

// CauseMayFollow is how long to wait for the end of another member of a group before those that failed are judged; 0 when there is
// nothing to wait for. When a member is killed, the ends of those that lost it are often seen before its own.
func (p Program) CauseMayFollow(now time.Time, failed []*corev1.Pod, members int) time.Duration {
	if len(failed) == members {
		return 0
	}
	other := func(pod *corev1.Pod) bool {
		reason, _ := p.Loss(pod)
		return reason != "" || p.ExitCode(pod) != ExitPeerLost
	}
	if slices.ContainsFunc(failed, other) {
		return 0
	}
	var wait time.Duration
	for _, pod := range failed {
		wait = max(wait, p.EndOf(pod).Add(CauseDelay).Sub(now))
	}
	return wait
}

// LastWords goes on after how a program ended with what it said at its end, of which the last is kept; empty for nothing.
func LastWords(words string) string {
	words = strings.TrimSpace(words)
	if words == "" {
		return ""
	}
	if runes := []rune(words); len(runes) > longestWords {
		words = "... " + string(runes[len(runes)-longestWords:])
	}
	return ": " + words
}
