// Package report is what the checkpoint agent and the manager say to one another. The agent serves a Report as JSON
// under StatusPath while it runs and leaves one as its termination message; the manager reads both, and asks for a
// checkpoint under RequestPath.
package report

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Paths that the agent serves at its port.
const (
	// StatusPath answers a GET with a Report.
	StatusPath = "/v1/status"
	// RequestPath takes a POST with the query parameter id and asks the training for a checkpoint now. It answers 202;
	// the same id again is no new request. The outcome is in the Report.
	RequestPath = "/v1/checkpoint"
)

// Environment variables and names that both sides know.
const (
	// Port of the agent, on replica 0.
	Port = 9464
	// RestoreContainer is the init container that brings a checkpoint back before the training starts.
	RestoreContainer = "checkpoint-restore"
	// AgentContainer is the native sidecar that keeps checkpoints safe while the training runs.
	AgentContainer = "checkpoint-agent"
	// MaxTerminationBytes bounds a termination message; the kubelet cuts off what is longer.
	MaxTerminationBytes = 4096
)

// Phase is what an agent is at.
type Phase string

// The phases.
const (
	// PhaseRestoring: the init container looks for a checkpoint and brings it to the volume.
	PhaseRestoring Phase = "Restoring"
	// PhaseSyncing: the sidecar watches for new checkpoints.
	PhaseSyncing Phase = "Syncing"
	// PhaseDone: the agent has ended, and the report is its last.
	PhaseDone Phase = "Done"
)

// Report is what the agent knows. Fields that do not apply are zero and absent in JSON.
type Report struct {
	Phase Phase `json:"phase"`
	// Newest is the newest valid checkpoint in the storage.
	Newest *Checkpoint `json:"newest,omitempty"`
	// Kept is the number of valid checkpoints in the storage.
	Kept int `json:"kept,omitempty"`
	// Restored is the checkpoint that the training starts from; nil when it begins at the first epoch.
	Restored *Checkpoint `json:"restored,omitempty"`
	// Skipped are checkpoints that could not be used, the newest first, at most 5.
	Skipped []Skipped `json:"skipped,omitempty"`
	// Problem is what keeps the agent from doing its work now; nil when nothing does. The agent goes on trying.
	Problem *Problem `json:"problem,omitempty"`
	// Request is the outcome of the last request for a checkpoint.
	Request *Request `json:"request,omitempty"`
	// UploadedBytes were sent to the storage since the agent started, and ReusedBytes were there already.
	UploadedBytes int64 `json:"uploadedBytes,omitempty"`
	ReusedBytes   int64 `json:"reusedBytes,omitempty"`
}

// Checkpoint is a valid checkpoint.
type Checkpoint struct {
	// Path is a URI in an object store, or the path in the volume.
	Path  string `json:"path"`
	Epoch int32  `json:"epoch"`
	Step  int64  `json:"step"`
	// SizeBytes of all its files.
	SizeBytes int64     `json:"sizeBytes"`
	Time      time.Time `json:"time"`
}

// Skipped is a checkpoint that cannot be used, and why.
type Skipped struct {
	Path    string `json:"path"`
	Message string `json:"message"`
}

// Reason of a problem, in the form of a condition's reason.
type Reason string

// The reasons of problems. They become reasons of the condition CheckpointReady.
const (
	// ReasonCredentialsMissing: there are no credentials, or they lack a key.
	ReasonCredentialsMissing Reason = "CredentialsMissing"
	// ReasonAccessDenied: the storage refuses the credentials.
	ReasonAccessDenied Reason = "AccessDenied"
	// ReasonBucketNotFound: the bucket or container does not exist.
	ReasonBucketNotFound Reason = "BucketNotFound"
	// ReasonStorageUnreachable: the storage does not answer.
	ReasonStorageUnreachable Reason = "StorageUnreachable"
	// ReasonVolumeFull: there is no space left.
	ReasonVolumeFull Reason = "VolumeFull"
	// ReasonCorruptCheckpoint: the training wrote a checkpoint whose files are not what its manifest says.
	ReasonCorruptCheckpoint Reason = "CorruptCheckpoint"
	// ReasonCheckpointNotFound: what resumeFrom names does not exist or holds no valid checkpoint. The restore
	// container ends with exit code 65 and the job fails.
	ReasonCheckpointNotFound Reason = "CheckpointNotFound"
	// ReasonCheckpointNotStored: the agent was stopped before a checkpoint was in the storage.
	ReasonCheckpointNotStored Reason = "CheckpointNotStored"
	// ReasonSuperseded: a newer attempt of the job has begun, so that this agent no longer writes.
	ReasonSuperseded Reason = "Superseded"
	// ReasonStorageError: anything else that the storage says.
	ReasonStorageError Reason = "StorageError"
)

// Problem is what keeps an agent from its work. Its message names the remedy and never holds a secret.
type Problem struct {
	Reason  Reason    `json:"reason"`
	Message string    `json:"message"`
	Since   time.Time `json:"since"`
}

// NewProblem makes a problem that a Report does not name yet.
func NewProblem(reason Reason, format string, arguments ...any) *Problem {
	return &Problem{Reason: reason, Message: fmt.Sprintf(format, arguments...)}
}

func (p *Problem) Error() string { return p.Message }

// Cut shortens a text to at most so many bytes and an ellipsis.
func Cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// RequestState is how far a request for a checkpoint is.
type RequestState string

// The states of a request.
const (
	// RequestPending: the training has not answered yet.
	RequestPending RequestState = "Pending"
	// RequestDone: the checkpoint is in the storage.
	RequestDone RequestState = "Done"
	// RequestFailed: there is no such checkpoint, for the reason in the message.
	RequestFailed RequestState = "Failed"
)

// Request is a request for a checkpoint now.
type Request struct {
	ID    string       `json:"id"`
	State RequestState `json:"state"`
	// Path of the checkpoint, when it is done.
	Path    string `json:"path,omitempty"`
	Message string `json:"message,omitempty"`
}

// Parse reads a report, as served or as a termination message; false when it is none.
func Parse(text []byte) (Report, bool) {
	var r Report
	if err := json.Unmarshal(text, &r); err != nil || r.Phase == "" {
		return Report{}, false
	}
	return r, true
}
