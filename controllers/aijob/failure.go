package aijob

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/internal/redact"
	"github.com/dcnlab/spot-training-operator/internal/source"
)

// consequence is what follows for a job from the end of an attempt.
type consequence int

const (
	// counted failures are retried as often as retryPolicy allows.
	counted consequence = iota
	// hopeless failures are not retried: no further attempt would end differently.
	hopeless
	// lost attempts are queued again and do not count: the program did nothing wrong. One that ran is queued at once, one that had not
	// started yet as if it was refused.
	lost
	// refused attempts are queued again after a pause and do not count: something in the cluster must change first.
	refused
)

// failure is what ended an attempt.
type failure struct {
	kind            consequence
	reason, message string
	exitCode        *int32
	// silent are the nodes of pods that have reported no end, with their boot IDs: one of these may be the cause.
	silent map[string]string
}

// program is the container whose end is that of its pod.
var program = podend.Program{
	Container: container,
	Remedies: map[string]string{
		reasons.OutOfMemory:          "raise spec.resources.limits.memory",
		reasons.StorageLimitExceeded: "raise spec.resources.limits.ephemeral-storage",
		reasons.ContainerStartFailed: "correct spec.command, or spec.image",
		reasons.InitContainerFailed:  "correct spec.podTemplate.initContainers",
	},
	LastWords: func(message string) string {
		if outputs := parseOutputs(message); outputs["message"] != "" {
			return outputs["message"]
		}
		return message
	},
}

// findFailure says what ended the attempt; nil when nothing has. Members that only ended because another was gone, or because they were
// stopped then, are not the cause.
func findFailure(members []*corev1.Pod) *failure {
	failed := podend.FailedOf(members)
	if len(failed) == 0 {
		return nil
	}
	cause := program.Cause(failed)
	end := program.EndOf(cause, podend.InWords(cause))
	if unfetched := source.EndOf(cause, podend.InWords(cause)); unfetched != nil && !end.Lost {
		end = *unfetched
	}
	found := &failure{reason: end.Reason, message: redact.Text(end.Message)}
	switch {
	case source.IsPermanent(end.Reason):
		found.kind = hopeless
	case source.IsTemporary(end.Reason):
		found.kind = refused
	case end.Lost:
		found.kind = lost
	}
	if end.ExitCode != 0 {
		found.exitCode = ptr.To(end.ExitCode)
	}
	return found
}

func lossOf(reason, message string) *failure {
	return &failure{kind: lost, reason: reason, message: redact.Text(strings.TrimSpace(message))}
}
