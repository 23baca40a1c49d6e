package source

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/dcnlab/spot-training-operator/api/podtemplate"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/internal/redact"
)

// longestText bounds what is taken from a report into a status.
const (
	longestText  = 1024
	longestShort = 128
)

// Fetched is the code that a pod has fetched, as it stands in the status; nil while it has not.
func Fetched(pod *corev1.Pod, code *podtemplate.Source) *podtemplate.SourceStatus {
	state := stateOf(pod)
	if code == nil || state == nil || state.Terminated == nil || state.Terminated.ExitCode != 0 {
		return nil
	}
	of := reportOf(state.Terminated).Source
	if of == nil {
		return nil
	}
	of.From, of.Digest, of.Revision = code.Origin(), cut(of.Digest, longestShort), cut(of.Revision, longestShort)
	return of
}

// IsFetching says whether a pod fetches its code now.
func IsFetching(pod *corev1.Pod) bool {
	state := stateOf(pod)
	return state != nil && state.Running != nil
}

// EndOf says why a pod could not fetch its code; nil when it could. Who names the pod in the message. The end is not the fault of the
// program: it is a loss where another try may end otherwise.
func EndOf(pod *corev1.Pod, who string) *podend.End {
	state := stateOf(pod)
	if state == nil || state.Terminated == nil || state.Terminated.ExitCode == 0 {
		return nil
	}
	ended := state.Terminated
	problem := reportOf(ended).Problem
	switch {
	case problem != nil && (IsPermanent(problem.Reason) || IsTemporary(problem.Reason)):
		return &podend.End{Reason: problem.Reason, Message: who + " cannot fetch its code: " + redact.Text(cut(problem.Message, longestText)),
			Lost: IsTemporary(problem.Reason)}
	case ended.ExitCode == podend.ExitTerminated: // it was told to stop
		return nil
	case ended.Reason == "OOMKilled":
		return &podend.End{Reason: reasons.SourceInvalid, Message: fmt.Sprintf("%s cannot fetch its code: the container %s used too much memory: "+
			"name a smaller repository or archive, or an image that has the code", who, Container)}
	}
	return &podend.End{Reason: reasons.InitContainerFailed, Message: fmt.Sprintf("%s: the container %s ended with exit code %d%s", who, Container,
		ended.ExitCode, podend.Suffix(redact.Text(cut(ended.Message, longestText))))}
}

// Differs says that a pod has fetched other code than the job was started with; empty when it has not.
func Differs(first, fetched *podtemplate.SourceStatus, who string) string {
	if first == nil || first.From != fetched.From || first.Digest == fetched.Digest {
		return ""
	}
	return fmt.Sprintf("%s has fetched other code from %s than the job was started with: its digest is %s, not %s of status.source: "+
		"put back what was there, and create the job again", who, fetched.From, fetched.Digest, first.Digest)
}

func reportOf(ended *corev1.ContainerStateTerminated) Report {
	var report Report
	_ = json.Unmarshal([]byte(ended.Message), &report) // of one that was killed there is none
	return report
}

// stateOf is the state of the container that fetches the code of a pod; nil for a pod without one.
func stateOf(pod *corev1.Pod) *corev1.ContainerState {
	for i := range pod.Status.InitContainerStatuses {
		if status := &pod.Status.InitContainerStatuses[i]; status.Name == Container {
			return &status.State
		}
	}
	return nil
}

func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return text[:most]
}
