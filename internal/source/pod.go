package source

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/dcnlab/spot-training-operator/api/podtemplate"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/internal/redact"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/report"
)

// longestText and longestShort bound what is taken from a report into a status.
const (
	longestText  = 1024
	longestShort = 125 // and an ellipsis
)

// Pinned is the code with which a job was started first; nil before, and when other code was named since.
func Pinned(code *podtemplate.Source, first *podtemplate.SourceStatus) *podtemplate.SourceStatus {
	if code == nil || first == nil || first.From != code.Origin() {
		return nil
	}
	return first
}

// Follow is the code that a job was started with first, as it stands in the status, after its pods have fetched theirs; nil entries are passed
// over. Other is a pod with other code, which a ConfigMap has that changed in between; the message names it by who.
func Follow(
	code *podtemplate.Source, first *podtemplate.SourceStatus, pods []*corev1.Pod, who func(*corev1.Pod) string,
) (is *podtemplate.SourceStatus, other *corev1.Pod, message string) {
	is = first
	for _, pod := range pods {
		if pod == nil {
			continue
		}
		fetched := Fetched(pod, code)
		if fetched == nil {
			continue
		}
		switch pinned := Pinned(code, is); {
		case pinned == nil:
			is = fetched
		case pinned.Digest != fetched.Digest:
			return is, pod, fmt.Sprintf("%s has fetched other code from %s than the job was started with: its digest is %s, not %s of status.source: "+
				"put back what was there, and create the job again", who(pod), fetched.From, fetched.Digest, pinned.Digest)
		}
	}
	return is, nil, ""
}

// Fetched is the code that a pod has fetched, as it stands in the status; nil while it has not.
func Fetched(pod *corev1.Pod, code *podtemplate.Source) *podtemplate.SourceStatus {
	ended := podend.InitState(pod, Container).Terminated
	if code == nil || ended == nil || ended.ExitCode != 0 {
		return nil
	}
	of := reportOf(ended).Source
	if of == nil {
		return nil
	}
	of.From, of.Digest, of.Revision = code.Origin(), report.Cut(of.Digest, longestShort), report.Cut(of.Revision, longestShort)
	return of
}

// IsFetching says whether a pod fetches its code now.
func IsFetching(pod *corev1.Pod) bool {
	return podend.InitState(pod, Container).Running != nil
}

// EndOf says why a pod could not fetch its code; nil when it could. Who names the pod in the message. The end is not the fault of the
// program: it is a loss where another try may end otherwise.
func EndOf(pod *corev1.Pod, who string) *podend.End {
	ended := podend.InitState(pod, Container).Terminated
	if ended == nil || ended.ExitCode == 0 {
		return nil
	}
	problem := reportOf(ended).Problem
	switch {
	case problem != nil && (IsPermanent(problem.Reason) || IsTemporary(problem.Reason)):
		return &podend.End{Reason: problem.Reason, Message: who + " cannot fetch its code: " + redact.Text(report.Cut(problem.Message, longestText)),
			Lost: IsTemporary(problem.Reason)}
	case ended.ExitCode == podend.ExitTerminated: // it was told to stop
		return nil
	case ended.Reason == "OOMKilled":
		return &podend.End{Reason: reasons.SourceInvalid, Message: fmt.Sprintf("%s cannot fetch its code: the container %s used too much memory: "+
			"name a smaller repository or archive, or an image that has the code", who, Container)}
	}
	return &podend.End{Reason: reasons.InitContainerFailed, Message: fmt.Sprintf("%s: the container %s ended with exit code %d%s", who, Container,
		ended.ExitCode, podend.Suffix(redact.Text(report.Cut(ended.Message, longestText))))}
}

func reportOf(ended *corev1.ContainerStateTerminated) Report {
	var said Report
	_ = json.Unmarshal([]byte(ended.Message), &said) // of one that was killed there is none
	return said
}
