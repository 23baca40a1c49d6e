package sidecar

import (
	"slices"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/report"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/retention"
)

// request asks the training for a checkpoint, unless it was asked for the same already.
func (y *syncer) request(id string) {
	y.requests.Lock()
	defer y.requests.Unlock()
	if now := y.status.snapshot().Request; now != nil && now.ID == id {
		return
	}
	err := y.Directory.Request(id)
	y.status.change(func(r *report.Report) {
		r.Request = &report.Request{ID: id, State: report.RequestPending}
		if err != nil {
			r.Request.State, r.Request.Message = report.RequestFailed, report.Cut(y.explain(err).Message, 500)
		}
	})
	y.Log.Info("a checkpoint was asked for", "id", id)
	y.wakeUp()
}

// adoptRequest takes over what was asked of an agent before this one.
func (y *syncer) adoptRequest() {
	id, err := y.Directory.Requested()
	if a, ok := y.Directory.Answered(); ok && (err != nil || id == "") {
		id = a.ID
	}
	if id == "" {
		return
	}
	y.status.change(func(r *report.Report) { r.Request = &report.Request{ID: id, State: report.RequestPending} })
}

// answerRequest says how the last request has ended, once it has. Stored are the valid checkpoints in the storage.
func (y *syncer) answerRequest(stored []retention.Checkpoint) {
	y.requests.Lock()
	defer y.requests.Unlock()
	now := y.status.snapshot().Request
	if now == nil || now.State != report.RequestPending {
		return
	}
	a, ok := y.Directory.Answered()
	if !ok || a.ID != now.ID {
		return
	}
	outcome := report.Request{ID: now.ID}
	bad, damaged := y.bad[a.Checkpoint]
	switch {
	case a.Error != "" || a.Checkpoint == "":
		outcome.State, outcome.Message = report.RequestFailed, report.Cut("the training could not take it: "+a.Error, 500)
	case slices.ContainsFunc(stored, func(c retention.Checkpoint) bool { return c.Name == a.Checkpoint }):
		outcome.State, outcome.Path = report.RequestDone, y.path(a.Checkpoint)
	case damaged:
		outcome.State, outcome.Message = report.RequestFailed, report.Cut("the training took "+a.Checkpoint+", but "+bad.why, 500)
	case !y.Directory.Exists(a.Checkpoint):
		outcome.State, outcome.Message = report.RequestFailed, a.Checkpoint+" was deleted before it was in the storage"
	default:
		return // it is on its way
	}
	y.status.change(func(r *report.Report) { r.Request = &outcome })
	y.Log.Info("a request for a checkpoint has ended", "id", outcome.ID, "state", outcome.State, "path", outcome.Path, "message", outcome.Message)
}
