package trainingjob

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"regexp"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/report"
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

// followRequest has a checkpoint taken for each new value of the annotation, and keeps its outcome in the status.
// The id in the status makes one request of one value, whichever manager follows it.
func (p *planner) followRequest() {
	id := requestID(p.job)
	if id == "" {
		return
	}
	next := mlv1.CheckpointRequest{ID: id, State: mlv1.CheckpointRequestPending}
	if c := p.job.Status.Checkpoint; c != nil && c.Request != nil && c.Request.ID == id {
		next = *c.Request
	}
	if next.State == mlv1.CheckpointRequestPending {
		p.answer(&next)
	}
	p.status.Checkpoint = cmp.Or(p.status.Checkpoint, &mlv1.CheckpointStatus{})
	p.status.Checkpoint.Request = &next
}

// answer brings a pending request up to date.
func (p *planner) answer(request *mlv1.CheckpointRequest) {
	if v := p.viewAgent(); v.sync != nil && v.sync.Request != nil && v.sync.Request.ID == request.ID {
		said := v.sync.Request
		switch said.State {
		case report.RequestDone:
			request.State, request.Path, request.Message = mlv1.CheckpointRequestDone, placeOf(p.job, said.Path), quoted(p.job, said.Message)
			return
		case report.RequestFailed:
			request.State, request.Message = mlv1.CheckpointRequestFailed, quoted(p.job, said.Message)
			return
		}
	}
	switch {
	case !build.CheckpointsEnabled(p.job):
		request.State = mlv1.CheckpointRequestFailed
		request.Message = "this job keeps no checkpoints: set spec.checkpoint and spec.checkpoint.enabled when creating it"
	case isFinished(&p.status):
		request.State, request.Message = mlv1.CheckpointRequestFailed, "the job ended before a checkpoint was taken for this request"
	case p.agent == "":
		request.Message = "waits until the training runs"
	default:
		p.ask, request.Message = request.ID, "waits for the training, which takes the checkpoint after its present step"
	}
}
