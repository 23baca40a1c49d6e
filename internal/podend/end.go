package podend

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dcnlab/spot-training-operator/api/reasons"
)

// End says why a pod failed or was lost.
type End struct {
	// Reason is one of package reasons.
	Reason string
	// Message names the pod, the cause and what helps.
	Message string
	// ExitCode of the program; 0 when it did not end by itself.
	ExitCode int32
	// Lost says that the pod was lost, and its program did not fail.
	Lost bool
	// Output is the end of what a program that failed wrote last, without secrets; the message has only the line that says what failed.
	Output string
}

// EndOf says why a pod that has failed did so. Who names the pod in the message. Known secrets are not repeated.
func (p *Program) EndOf(pod *corev1.Pod, who string, secrets ...string) End {
	if reason, detail := p.Loss(pod); reason != "" {
		return p.LossOf(reason, who, detail)
	}
	ended := p.Terminated(pod)
	if p.WasDeleted(pod) && (ended == nil || endsByDeletion(ended)) {
		return p.LossOf(reasons.PodDeleted, who, "")
	}
	if isOverStorageLimit(pod) {
		return p.end(reasons.StorageLimitExceeded, who+" was evicted: ephemeral-storage limit exceeded"+Suffix(pod.Status.Message))
	}
	if container, init := initFailure(pod); ended == nil && init != nil {
		_, how := classify(init)
		words := p.lastWords(init)
		found := p.end(reasons.InitContainerFailed, fmt.Sprintf("%s: the init container %s %s%s", who, container, how, Suffix(WhatFailed(words, secrets...))))
		found.Output = lastOutput(words, secrets)
		return found
	}
	if ended == nil || ended.ExitCode == 0 {
		why := cmp.Or(strings.TrimSpace(pod.Status.Reason+" "+pod.Status.Message), "no container ended")
		return p.end(reasons.ProgramFailed, who+" failed: "+why)
	}
	reason, how := classify(ended)
	words := p.lastWords(ended)
	found := p.end(reason, who+" "+how+Suffix(WhatFailed(words, secrets...)))
	found.ExitCode, found.Output = ended.ExitCode, lastOutput(words, secrets)
	return found
}

// initFailure is how an init container ended that failed, so that the program never started; nil when none did. Sidecars are started
// again, and never make a pod fail before its program.
func initFailure(pod *corev1.Pod) (container string, ended *corev1.ContainerStateTerminated) {
	for i := range pod.Status.InitContainerStatuses {
		status := &pod.Status.InitContainerStatuses[i]
		if ended := status.State.Terminated; ended != nil && ended.ExitCode != 0 {
			return status.Name, ended
		}
	}
	return "", nil
}

// LossOf is the end of a pod that was lost for a reason.
func (p *Program) LossOf(reason, who, detail string) End {
	found := p.end(reason, who+" "+losses[reason]+Suffix(detail))
	found.Lost = true
	return found
}

func (p *Program) end(reason, message string) End {
	if remedy := p.Remedies[reason]; remedy != "" {
		message += "; " + remedy
	}
	return End{Reason: reason, Message: message}
}

// endsByDeletion says whether a program of a pod that was deleted ended by the signals that it then gets.
func endsByDeletion(ended *corev1.ContainerStateTerminated) bool {
	switch ended.ExitCode {
	case 0, ExitTerminated:
		return true
	case ExitKilled: // at the end of the grace period
		return ended.Reason != "OOMKilled"
	}
	return false
}

// classify an exit code other than 0.
func classify(ended *corev1.ContainerStateTerminated) (reason, how string) {
	code := ended.ExitCode
	switch {
	case ended.Reason == "OOMKilled":
		return reasons.OutOfMemory, fmt.Sprintf("was killed for using more memory than its limit (exit code %d)", code)
	case ended.Reason == "StartError" || ended.Reason == "ContainerCannotRun":
		return reasons.ContainerStartFailed, fmt.Sprintf("could not start its program (exit code %d)", code)
	case code == ExitPeerLost:
		return reasons.PeerLost, fmt.Sprintf("ended with exit code %d after it lost contact to another pod of the job", code)
	case code > FirstSignalCode:
		return reasons.ProgramKilled, fmt.Sprintf("was killed by signal %d (exit code %d)", code-FirstSignalCode, code)
	}
	return reasons.ProgramFailed, fmt.Sprintf("ended with exit code %d", code)
}

// Cause is the one of a group's failed pods that made the others end. A loss comes before a failure of the program, and both before
// those that may follow from another's end. Among pods that were deleted and pods that lost a peer the first is the cause: one that a
// user deleted comes before those that lost it, one that the Job controller then deleted after them.
func (p *Program) Cause(failed []*corev1.Pod) *corev1.Pod {
	return slices.MinFunc(failed, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(p.rank(a), p.rank(b)), p.EndTime(a).Compare(p.EndTime(b)), cmp.Compare(a.Name, b.Name))
	})
}

func (p *Program) rank(pod *corev1.Pod) int {
	reason, _ := p.Loss(pod)
	switch code := p.ExitCode(pod); {
	case reason != "":
		return 0
	case p.WasDeleted(pod), code == ExitPeerLost:
		return 3
	case code == ExitTerminated:
		return 2
	}
	return 1
}

// CauseDelay is how much later than its consequences the cause of a failure may be seen.
const CauseDelay = 3 * time.Second

// CauseMayFollow is how long to wait for the end of another pod of a group before those that failed are judged; 0 when there is nothing
// to wait for. When a pod is killed, the ends of those that lost it are often seen before its own. Seen is when the ends of pods that lost
// another were first seen.
func (p *Program) CauseMayFollow(now time.Time, failed []*corev1.Pod, members int, seen map[types.UID]time.Time) time.Duration {
	if len(failed) == members {
		return 0
	}
	var wait time.Duration
	for _, pod := range failed {
		if reason, _ := p.Loss(pod); reason != "" || p.ExitCode(pod) != ExitPeerLost {
			return 0
		}
		wait = max(wait, cmp.Or(seen[pod.UID], now).Add(CauseDelay).Sub(now))
	}
	return wait
}

// PeersLost remembers when the ends of pods that lost another were first seen. The times in their statuses are of the clocks of their nodes,
// which may differ from that of the manager by more than it waits. The zero value is ready for use. It is safe for concurrent use.
type PeersLost struct {
	seen sync.Map // map[types.UID]time.Time by the types.NamespacedName of the job
}

// Seen is when each of a job's pods that lost another was first seen to have ended: now, if it was not seen before.
func (l *PeersLost) Seen(job types.NamespacedName, program *Program, pods []*corev1.Pod, now time.Time) map[types.UID]time.Time {
	last, _ := l.seen.Load(job)
	before, _ := last.(map[types.UID]time.Time)
	var next map[types.UID]time.Time
	for _, pod := range pods {
		if program.ExitCode(pod) == ExitPeerLost {
			if next == nil {
				next = map[types.UID]time.Time{}
			}
			next[pod.UID] = cmp.Or(before[pod.UID], now)
		}
	}
	if next == nil {
		l.Forget(job)
	} else {
		l.seen.Store(job, next)
	}
	return next
}

// Forget a job that is gone.
func (l *PeersLost) Forget(job types.NamespacedName) { l.seen.Delete(job) }
