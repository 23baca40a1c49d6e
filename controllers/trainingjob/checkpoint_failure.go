package trainingjob

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/report"
)

// exitNoCheckpoint is what the restore container ends with when what resumeFrom names cannot be used (EX_DATAERR).
const exitNoCheckpoint = 65

// restoreEnd says why the init container that restores a checkpoint failed; nil when it did not. The training has not begun then.
func restoreEnd(pod *corev1.Pod, worker string, secrets []string) *podend.End {
	ended := podend.InitState(pod, report.RestoreContainer).Terminated
	if ended == nil || ended.ExitCode == 0 || ended.ExitCode == podend.ExitTerminated && workerProgram.WasDeleted(pod) {
		return nil
	}
	words := strings.TrimSpace(ended.Message)
	if last, ok := report.Parse([]byte(words)); ok {
		words = ""
		if last.Problem != nil {
			words = last.Problem.Message
		}
	}
	words = podend.Suffix(podend.WhatFailed(words, secrets...))
	if ended.ExitCode == exitNoCheckpoint {
		return &podend.End{
			Reason: reasons.CheckpointNotFound, ExitCode: ended.ExitCode, // other codes are not the training's, which the failure policy names
			Message: worker + " found no checkpoint to resume from" + words + "; correct spec.checkpoint.resumeFrom in a new job",
		}
	}
	how := fmt.Sprintf("ended with exit code %d", ended.ExitCode)
	if ended.Reason == "OOMKilled" {
		how = "was killed for using too much memory (exit code 137)"
	}
	return &podend.End{Reason: reasons.RestoreFailed, Message: fmt.Sprintf("the container %s of %s %s%s", report.RestoreContainer, worker, how, words)}
}

// blameStorage turns the failure of workers that gave up waiting for replica 0 while that restores a checkpoint into a loss: a storage that
// does not answer for long must not use up the backoff limit.
func (o *observed) blameStorage(found *failure) *failure {
	if found.Lost || found.ExitCode != podend.ExitPeerLost {
		return found
	}
	reason, message := o.restoring()
	if reason == "" {
		return found
	}
	blamed := *found
	blamed.Lost, blamed.Message = true, found.Message+"; "+message
	if reason != reasons.WorkersStarting {
		blamed.Reason = reason
	}
	return &blamed
}
