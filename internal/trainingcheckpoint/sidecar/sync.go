package sidecar

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/manifest"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/report"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/restore"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/retention"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/store"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/volume"
)

// syncer keeps the checkpoints of one attempt safe. It looks at the directory and the storage, and does what is to be
// done, over and over: a failure at any point is made good by the next look.
type syncer struct {
	Settings
	status   *status
	wake     chan struct{}
	restored restored
	verified volume.Verified
	// bad are checkpoints in the directory that are not what their manifest says, by name.
	bad map[string]damaged
	// unread could not be looked at in the last pass.
	unread map[string]bool
	// protected is never deleted from the directory: what the training may have started from.
	protected map[string]bool
	// initial are the names in the directory when the agent began.
	initial   []string
	collected time.Time

	requests sync.Mutex
}

// damaged is a checkpoint in the directory that cannot be used.
type damaged struct {
	why      string
	manifest *manifest.Manifest // nil when it cannot be read
	// other: it is whole, but another one has its name.
	other bool
}

// Sync keeps checkpoints safe until ctx ends, and then until all that the training has finished is in the storage. It
// leaves its last report as termination message.
func Sync(ctx context.Context, s Settings) error {
	s = s.withDefaults()
	y := &syncer{
		Settings: s, status: newStatus(report.PhaseSyncing), wake: make(chan struct{}, 1), restored: recall(s),
		verified: volume.Verified{Directory: s.Directory}, bad: map[string]damaged{}, protected: map[string]bool{},
	}
	y.status.change(func(r *report.Report) { r.Restored, r.Skipped = y.restored.Restored, y.restored.Skipped })
	// What must be finished goes on when ctx ends; the kubelet ends it with the grace period.
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	if err := s.Directory.Create(); err != nil { // the training makes it, then
		s.Log.Warn("the directory of checkpoints cannot be made", "error", err.Error())
	}
	if y.initial, _ = s.Directory.Names(); len(y.initial) == 0 { // what keeps it from being read, the first pass says
		y.protected[y.restored.Name] = true
	}
	y.adoptRequest()
	go serve(work, s.Address, y.status, y.request, s.Log)
	go watch(work, s.Directory, y.wakeUp, s.Log)

	defer context.AfterFunc(ctx, func() { // at once, whatever is under way
		if err := y.status.leaveEveryChange(s.TerminationPath); err != nil {
			s.Log.Warn("the termination message cannot be written", "error", err.Error())
		}
	})()
	if err := s.Directory.Clean(); err != nil {
		s.Log.Warn("what is left of deleted checkpoints cannot be removed", "error", err.Error())
	}
	y.untilStopped(ctx, work)
	y.finish(work)
	y.status.change(func(r *report.Report) { r.Phase = report.PhaseDone })
	return y.status.leave(s.TerminationPath)
}

func (y *syncer) wakeUp() {
	select {
	case y.wake <- struct{}{}:
	default:
	}
}

func (y *syncer) untilStopped(ctx, work context.Context) {
	backoff := y.newBackoff()
	for {
		err := y.pass(work)
		y.tell(err)
		pause := y.Look
		if err != nil {
			pause = min(backoff.Step(), y.Look)
		} else {
			backoff = y.newBackoff()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		case <-y.wake:
			if err != nil { // new checkpoints do not make a storage answer
				sleep(ctx, y.Backoff)
			}
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// finish makes the last passes after SIGTERM. It ends when nothing is left to do, or when trying again is of no use; what a
// storage that does not answer at the moment is tried for, the grace period bounds.
func (y *syncer) finish(work context.Context) {
	backoff := y.newBackoff()
	for {
		err := y.pass(work)
		y.tell(err)
		if err == nil {
			select {
			case <-y.wake: // a checkpoint has come meanwhile
				continue
			default:
				return
			}
		}
		if reason := y.problem(err).Reason; reason != report.ReasonStorageUnreachable && reason != report.ReasonStorageError {
			return
		}
		sleep(work, backoff.Step())
	}
}

// pass looks once and does what is to be done.
func (y *syncer) pass(ctx context.Context) error {
	names, err := y.Directory.Names()
	if err != nil {
		return err
	}
	maps.DeleteFunc(y.bad, func(name string, _ damaged) bool { return !y.Directory.Exists(name) })
	local, names, unread := y.local(ctx, names)
	if y.Store == nil {
		err = y.passVolume(ctx, names, local)
	} else {
		err = y.passStore(ctx, local)
		if err != nil && !errors.Is(err, store.ErrSuperseded) {
			err = errors.Join(err, y.pruneUnsent(ctx, local))
		}
	}
	return errors.Join(err, unread)
}

// local are the checkpoints in the directory whose manifest can be read and whose files have the right sizes. It also returns
// the names without those that could not be looked at, which hinder none of the others and are not deleted, and why.
func (y *syncer) local(ctx context.Context, names []string) (map[string]*manifest.Manifest, []string, error) {
	var looked []string
	var unread error
	y.unread = map[string]bool{}
	local := map[string]*manifest.Manifest{}
	for _, name := range names {
		m, err := y.Directory.Read(ctx, name)
		switch {
		case manifest.IsInvalid(err):
			y.condemn(name, nil, err)
		case err != nil && !y.Directory.Exists(name): // the training has deleted it
		case err != nil:
			unread = errors.Join(unread, err)
			y.unread[name] = true
			continue
		default:
			if bad, known := y.bad[name]; known && bad.manifest != nil && string(bad.manifest.Text) == string(m.Text) {
				break
			}
			delete(y.bad, name) // it has been written again
			local[name] = m
		}
		looked = append(looked, name)
	}
	return local, looked, unread
}

func (y *syncer) condemn(name string, m *manifest.Manifest, err error) {
	if before, known := y.bad[name]; !known || before.why != err.Error() {
		y.Log.Warn("checkpoint does not count", "checkpoint", name, "why", err.Error())
	}
	y.bad[name] = damaged{why: err.Error(), manifest: m, other: errors.Is(err, store.ErrOtherContent)}
}

// publish reports the valid checkpoints in the storage, the newest first, and why others are not valid, by name. It answers the request
// for a checkpoint.
func (y *syncer) publish(valid []retention.Checkpoint, why map[string]string) {
	y.status.change(func(r *report.Report) {
		r.Newest, r.Kept, r.Skipped = nil, len(valid), y.skipped(why)
		if len(valid) > 0 {
			r.Newest = restore.Describe(valid[0].Manifest, y.path(valid[0].Name))
		}
	})
	y.answerRequest(valid)
}

// path of a checkpoint in the storage.
func (y *syncer) path(name string) string {
	if y.Store != nil {
		return y.Store.CheckpointURI(name)
	}
	return y.Directory.Join(name)
}

// problem is what an error of a pass means, or what is wrong although there was none; nil for nothing.
func (y *syncer) problem(err error) *report.Problem {
	switch {
	case errors.Is(err, store.ErrSuperseded):
		return report.NewProblem(report.ReasonSuperseded,
			"a later attempt of the job has begun, which keeps the checkpoints now: this pod no longer writes to the storage")
	case err != nil:
		return y.explain(err)
	}
	return y.shortcoming()
}

// tell reports how a pass went.
func (y *syncer) tell(err error) {
	problem := y.problem(err)
	if y.status.problem(problem, time.Now()) {
		if problem == nil {
			y.Log.Info("the storage works again")
		} else {
			y.Log.Warn("checkpoint sync failing", "reason", problem.Reason, "message", problem.Message)
		}
	}
}
