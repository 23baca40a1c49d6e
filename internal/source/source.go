// Package source is what the manager and the container that fetches a job's code say to one another: the manager tells it by environment
// variables what to fetch, and reads from its termination message what it fetched, or why it could not.
package source

import (
	"github.com/dcnlab/spot-training-operator/api/podtemplate"
	"github.com/dcnlab/spot-training-operator/api/reasons"
)

// Names that both sides know.
const (
	// Container is the init container that fetches the code.
	Container = "operator-source"

	// EnvSource has the podtemplate.Source as JSON.
	EnvSource = "SOURCE"
	// EnvDirectory is the directory of the code. Those above it can be written.
	EnvDirectory = "SOURCE_DIRECTORY"
	// EnvFiles is the folder with the keys of the ConfigMap.
	EnvFiles = "SOURCE_FILES"
	// EnvCredentials is the folder with the keys of the Secret; it is empty while the Secret does not exist.
	EnvCredentials = "SOURCE_CREDENTIALS" //nolint:gosec // the name of a variable
	// EnvDigest is the digest of the code at the first start; empty before.
	EnvDigest = "SOURCE_DIGEST"
	// EnvTermination is the file of the termination message.
	EnvTermination = "TERMINATION_MESSAGE_PATH"
)

// exitCodes are those of sysexits.h.
var exitCodes = map[string]int{
	reasons.SourceInvalid: 65, reasons.SourceChanged: 65, reasons.SourceNotFound: 66, reasons.SourceUnreachable: 69, reasons.SourceVolumeFull: 74,
	reasons.SourceAccessDenied: 77,
}

// Problem is why the code could not be fetched. Its message names the remedy and never holds a secret.
type Problem struct {
	// Reason is one of package reasons that begin with Source.
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

func (p *Problem) Error() string { return p.Message }

// ExitCode is that of the container.
func (p *Problem) ExitCode() int { return exitCodes[p.Reason] }

// IsPermanent says of the reason of a problem whether another try ends the same way until the spec is changed.
func IsPermanent(reason string) bool {
	return reason == reasons.SourceInvalid || reason == reasons.SourceChanged
}

// IsTemporary says of a reason whether it is that of a problem which another try may not have: a server may answer again, or a user may
// create what is missing.
func IsTemporary(reason string) bool {
	_, is := exitCodes[reason]
	return is && !IsPermanent(reason)
}

// Report is the termination message of the container: either what was fetched, or the problem.
type Report struct {
	Source  *podtemplate.SourceStatus `json:"source,omitempty"`
	Problem *Problem                  `json:"problem,omitempty"`
}
