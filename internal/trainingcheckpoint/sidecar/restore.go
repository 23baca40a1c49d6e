package sidecar

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"time"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/report"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/restore"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/store"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/volume"
)

// ErrNotFound says that there is nothing to resume from. The report says where it was looked for.
var ErrNotFound = errors.New("there is no checkpoint to resume from")

// Restore brings a checkpoint back and returns when the training may start. While a storage does not answer or refuses, it
// keeps trying, and serves what is wrong. It returns ErrNotFound when there is nothing to resume from, and ctx's error
// when it was stopped.
func Restore(ctx context.Context, s Settings) error {
	s = s.withDefaults()
	status := newStatus(report.PhaseRestoring)
	serving, stop := context.WithCancel(ctx)
	defer stop()
	go serve(serving, s.Address, status, nil, s.Log)

	result, err := restoreUntilDone(ctx, s, status)
	none, notFound := errors.AsType[*report.Problem](err)
	if err != nil && !notFound {
		return errors.Join(err, status.leave(s.TerminationPath))
	}
	status.change(func(r *report.Report) {
		r.Phase, r.Restored, r.Skipped = report.PhaseDone, result.Restored, result.Skipped
		r.Newest = result.Restored
		if result.Name == "" { // of another job
			r.Newest = nil
		}
	})
	if notFound {
		status.problem(none, time.Now())
		s.Log.Error("there is nothing to resume from", "why", none.Message)
		return errors.Join(ErrNotFound, status.leave(s.TerminationPath))
	}
	if result.Restored == nil {
		s.Log.Info("there is no checkpoint: the training begins at the first epoch")
	} else {
		s.Log.Info("checkpoint restored", "checkpoint", result.Restored.Path, "epoch", result.Restored.Epoch, "step", result.Restored.Step)
	}
	if err := remember(s, result); err != nil { // only for the report of the sidecar
		s.Log.Warn("what was restored cannot be noted in the volume", "error", err.Error())
	}
	return status.leave(s.TerminationPath)
}

// restoreUntilDone tries until it is done, or there is nothing to resume from, which is the error then.
func restoreUntilDone(ctx context.Context, s Settings, status *status) (restore.Result, error) {
	backoff := s.newBackoff()
	for {
		result, err := restore.Run(ctx, s.Settings)
		if err == nil {
			status.problem(nil, time.Now())
			return result, nil
		}
		problem := s.explain(err)
		switch {
		case problem.Reason == report.ReasonCheckpointNotFound:
			return result, problem
		case ctx.Err() != nil:
			return result, ctx.Err()
		}
		if status.problem(problem, time.Now()) {
			s.Log.Warn("the checkpoint cannot be restored yet", "reason", problem.Reason, "message", problem.Message)
		}
		status.change(func(r *report.Report) { r.Skipped = result.Skipped })
		if err := status.leave(s.TerminationPath); err != nil {
			s.Log.Warn("the termination message cannot be written", "error", err.Error())
		}
		sleep(ctx, backoff.Step())
		if ctx.Err() != nil {
			return result, ctx.Err()
		}
	}
}

// explain puts an error into words, by the store that is most likely its origin.
func (s Settings) explain(err error) *report.Problem {
	if known, ok := errors.AsType[*report.Problem](err); ok {
		return known
	}
	if origin := cmp.Or(s.Store, s.ResumeStore); origin != nil {
		return origin.Explain(err)
	}
	if local := store.ExplainVolume(err); local != nil {
		return local
	}
	return &report.Problem{Reason: report.ReasonStorageError, Message: report.Cut(err.Error(), 500)}
}

// restoredFile tells the sidecar what the init container of the same pod has restored.
const restoredFile = ".agent-restored.json"

type restored struct {
	Attempt int `json:"attempt"`
	restore.Result
}

func remember(s Settings, r restore.Result) error {
	if err := s.Directory.Create(); err != nil {
		return err
	}
	text, err := json.Marshal(restored{s.Attempt, r})
	if err != nil {
		return err
	}
	return volume.WriteFile(s.Directory.Path, restoredFile, text)
}

// recall returns what remember noted in the same attempt.
func recall(s Settings) restored {
	var r restored
	text, err := os.ReadFile(s.Directory.Join(restoredFile))
	if err != nil || json.Unmarshal(text, &r) != nil || r.Attempt != s.Attempt {
		return restored{}
	}
	return r
}
