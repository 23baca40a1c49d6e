package trainingjob

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/internal/checkpoint/report"
	"github.com/dcnlab/spot-training-operator/internal/podloss"
)

// exitNoCheckpoint is what the restore container ends with when what resumeFrom names cannot be used (EX_DATAERR).
const exitNoCheckpoint = 65

// restoreFailure fills in the failure of the init container that brings a checkpoint back; false when that did not fail.
// The training has not begun then.
func restoreFailure(pod *corev1.Pod, found *failure) bool {
	ended := restoreEnd(pod)
	if ended == nil || ended.ExitCode == 0 || ended.ExitCode == podloss.ExitTerminated && workerProgram.WasDeleted(pod) {
		return false
	}
	words := strings.TrimSpace(ended.Message)
	if last, ok := report.Parse([]byte(words)); ok {
		words = ""
		if last.Problem != nil {
			words = last.Problem.Message
		}
	}
	if words != "" {
		words = ": " + clip(words, maxMessage)
	}
	if ended.ExitCode == exitNoCheckpoint {
		found.exitCode = ended.ExitCode // other codes are not the training's, which the failure policy speaks of
		found.reason = mlv1.ReasonCheckpointNotFound
		found.message = found.who + " found no checkpoint to resume from" + words + "; correct spec.checkpoint.resumeFrom in a new job"
		return true
	}
	how := fmt.Sprintf("ended with exit code %d", ended.ExitCode)
	if ended.Reason == "OOMKilled" {
		how = "was killed for using too much memory (exit code 137)"
	}
	found.reason = mlv1.ReasonRestoreFailed
	found.message = fmt.Sprintf("the container %s of %s %s%s", report.RestoreContainer, found.who, how, words)
	return true
}

// blameStorage takes the blame from workers that gave up waiting for replica 0 while that brings back a checkpoint: a storage
// that does not answer for long must not use up the backoff limit.
func blameStorage(o observed, found *failure) *failure {
	if found.disrupted || found.exitCode != podloss.ExitPeerLost {
		return found
	}
	reason, message := restoring(o)
	if reason == "" {
		return found
	}
	blamed := *found
	blamed.disrupted, blamed.message = true, found.message+"; "+message
	if reason != mlv1.ReasonWorkersStarting {
		blamed.reason = reason
	}
	return &blamed
}

func restoreEnd(pod *corev1.Pod) *corev1.ContainerStateTerminated {
	for _, status := range pod.Status.InitContainerStatuses {
		if status.Name == report.RestoreContainer {
			return status.State.Terminated
		}
	}
	return nil
}
