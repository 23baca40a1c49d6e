package trainingjob

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/internal/checkpoint/report"
)

// plainID is a request's id that can be written into a file and a URL as it is.
var plainID = regexp.MustCompile(`^[A-Za-z0-9._:+/=@-]{1,128}$`)

// requestID is the id of the checkpoint that the annotation asks for; empty when it asks for none.
func requestID(job *mlv1.TrainingJob) string {
	value := job.Annotations[mlv1.AnnotationCheckpointNow]
	if value == "" || plainID.MatchString(value) {
		return value
	}
	sum := sha256.Sum256([]byte(value))
	return hex.EncodeToString(sum[:])
}

// followRequest has a checkpoint taken for each new value of the annotation, and keeps in the status what became of it.
// The id in the status makes one request of one value, whichever manager follows it.
func followRequest(o observed, d *desired) {
	id := requestID(o.job)
	if id == "" {
		return
	}
	next := mlv1.CheckpointRequest{ID: id, State: mlv1.CheckpointRequestPending}
	if c := o.job.Status.Checkpoint; c != nil && c.Request != nil && c.Request.ID == id {
		next = *c.Request
	}
	if next.State == mlv1.CheckpointRequestPending {
		answer(o, d, &next)
	}
	if d.status.Checkpoint == nil {
		d.status.Checkpoint = &mlv1.CheckpointStatus{}
	}
	d.status.Checkpoint.Request = &next
}

// answer brings a pending request up to date.
func answer(o observed, d *desired, request *mlv1.CheckpointRequest) {
	if v := viewAgent(o); v.sync != nil && v.sync.Request != nil && v.sync.Request.ID == request.ID {
		said := v.sync.Request
		switch said.State {
		case report.RequestDone:
			request.State, request.Path, request.Message = mlv1.CheckpointRequestDone, placeOf(o.job, said.Path), quoted(o.job, said.Message)
			return
		case report.RequestFailed:
			request.State, request.Message = mlv1.CheckpointRequestFailed, quoted(o.job, said.Message)
			return
		}
	}
	switch {
	case !checkpointsEnabled(o.job):
		request.State = mlv1.CheckpointRequestFailed
		request.Message = "this job keeps no checkpoints: set spec.checkpoint and spec.checkpoint.enabled when creating it"
	case finished(&d.status):
		request.State, request.Message = mlv1.CheckpointRequestFailed, "the job ended before a checkpoint was taken for this request"
	case d.agent == "":
		request.Message = "waits until the training runs"
	default:
		d.ask, request.Message = request.ID, "waits for the training, which takes the checkpoint after its present step"
	}
}
