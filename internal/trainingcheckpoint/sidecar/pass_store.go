package sidecar

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/manifest"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/report"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/retention"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/store"
)

// passStore sends what the store lacks, the newest first, and deletes what is beyond the number to keep, in the store and
// in the directory.
func (y *syncer) passStore(ctx context.Context, local map[string]*manifest.Manifest) error {
	area, err := y.lookAndMark(ctx)
	if err != nil {
		return err
	}
	y.notePresent(area, local)
	lacking := y.lacking(area, local)
	defer y.status.send(nil)
	for i, name := range lacking {
		y.status.send(lacking[i:])
		sent, err := y.upload(ctx, area, name, local[name])
		if err != nil {
			return err
		}
		if !sent {
			continue
		}
		if area, err = y.lookAndMark(ctx); err != nil {
			return err
		}
		if err := y.pruneStore(ctx, area); err != nil {
			return err
		}
		if y.newerThan(local) { // which goes first
			y.wakeUp()
			return nil
		}
	}
	if err := y.pruneStore(ctx, area); err != nil {
		return err
	}
	return y.pruneLocal(local, y.lacking(area, local))
}

// notePresent leaves out what the directory has under the name of another valid checkpoint in the store, as a program has it
// that did not resume.
func (y *syncer) notePresent(area *store.Area, local map[string]*manifest.Manifest) {
	for name, m := range local {
		if present, there := area.Find(name); there && present.Valid && !manifest.SameFiles(present.Manifest, m) {
			y.condemn(name, m, store.ErrOtherContent)
			delete(local, name)
		}
	}
	y.publish(retention.Valid(area.Checkpoints), area.Why)
}

// lookAndMark lists the job's area, reports what is in it, and sees to it that earlier attempts stop.
func (y *syncer) lookAndMark(ctx context.Context) (*store.Area, error) {
	area, err := y.Store.Look(ctx)
	if err != nil {
		return nil, err
	}
	y.publish(retention.Valid(area.Checkpoints), area.Why)
	switch {
	case area.Writer > y.Attempt:
		return nil, store.ErrSuperseded
	case area.Writer < y.Attempt:
		return area, y.Store.Mark(ctx, y.Attempt)
	}
	return area, nil
}

// lacking are the names of checkpoints in the directory that the store lacks and that are among the newest ones to keep,
// the newest first.
func (y *syncer) lacking(area *store.Area, local map[string]*manifest.Manifest) []string {
	lacks := func(name string) bool {
		present, there := area.Find(name)
		return !there || !present.Valid
	}
	all := slices.Clone(area.Checkpoints)
	for name, m := range local {
		if lacks(name) {
			all = append(all, retention.Checkpoint{Name: name, Manifest: m, Valid: true})
		}
	}
	wanted := retention.Valid(all)
	if y.Retention > 0 {
		wanted = wanted[:min(y.Retention, len(wanted))]
	}
	var lacking []string
	for _, c := range wanted {
		if lacks(c.Name) {
			lacking = append(lacking, c.Name)
		}
	}
	return lacking
}

// upload sends one checkpoint; false when it could not, for a reason that lies in the checkpoint.
func (y *syncer) upload(ctx context.Context, area *store.Area, name string, m *manifest.Manifest) (bool, error) {
	dir, err := y.Directory.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = dir.Close() }()
	began := time.Now()
	sent, err := y.Store.Upload(ctx, area, y.Attempt, dir, name, m)
	switch {
	case err == nil:
	case errors.Is(err, store.ErrOtherContent), manifest.IsInvalid(err) && y.Directory.Exists(name):
		y.condemn(name, m, err)
		return false, nil
	case !y.Directory.Exists(name): // the training has deleted it meanwhile
		return false, nil
	default:
		return false, err
	}
	y.status.change(func(r *report.Report) {
		r.UploadedBytes += sent.Uploaded
		r.ReusedBytes += sent.Reused
	})
	y.Log.Info("checkpoint is in the storage", "checkpoint", name, "uploadedBytes", sent.Uploaded, "reusedBytes", sent.Reused,
		"seconds", time.Since(began).Seconds())
	return true, nil
}

// newerThan says whether the training has written a checkpoint since the directory was looked at.
func (y *syncer) newerThan(local map[string]*manifest.Manifest) bool {
	names, err := y.Directory.Names()
	return err == nil && slices.ContainsFunc(names, func(name string) bool {
		_, bad := y.bad[name]
		return local[name] == nil && !bad && !y.unread[name]
	})
}

// pruneStore deletes checkpoints of the store beyond the number to keep, and from time to time what no checkpoint refers to.
func (y *syncer) pruneStore(ctx context.Context, area *store.Area) error {
	doomed := retention.Surplus(area.Checkpoints, y.Retention, func(name string) bool {
		return name == y.restored.Name || area.Reading[name]
	})
	if len(doomed) == 0 && time.Since(y.collected) < collectEvery {
		return nil
	}
	for _, name := range doomed {
		if err := y.Store.Fence(ctx, y.Attempt); err != nil {
			return err
		}
		if err := y.Store.Delete(ctx, name); err != nil {
			return err
		}
		y.Log.Info("checkpoint deleted from the storage", "checkpoint", name)
	}
	if err := y.Store.Collect(ctx, y.Attempt, y.Margin); err != nil {
		return err
	}
	y.collected = time.Now()
	if len(doomed) == 0 {
		return nil
	}
	area, err := y.Store.Look(ctx)
	if err == nil {
		y.publish(retention.Valid(area.Checkpoints), area.Why)
	}
	return err
}

// pruneUnsent keeps the directory from filling up while the store cannot be used: beyond the newest checkpoints to keep, which
// it verifies first, the others would not be sent any more.
func (y *syncer) pruneUnsent(ctx context.Context, local map[string]*manifest.Manifest) error {
	if y.Retention <= 0 || len(local) <= y.Retention {
		return nil
	}
	var invalid []string
	for name := range local {
		_, err := y.verified.Check(ctx, name)
		switch {
		case manifest.IsInvalid(err):
			invalid = append(invalid, name)
		case err != nil:
			return nil // it may be gone; the next pass looks again
		}
	}
	return y.pruneLocal(local, invalid)
}

// pruneLocal deletes checkpoints in the directory beyond the number to keep, except those that are yet to be sent or seen to, and damaged
// ones that are older than all that is kept, as nothing else would delete them.
func (y *syncer) pruneLocal(local map[string]*manifest.Manifest, except []string) error {
	var all []retention.Checkpoint
	for name, m := range local {
		if !slices.Contains(except, name) {
			all = append(all, retention.Checkpoint{Name: name, Manifest: m, Valid: true, Changed: y.changed(name)})
		}
	}
	y.protect(retention.Valid(all))
	for name, bad := range y.bad {
		if !bad.other {
			all = append(all, retention.Checkpoint{Name: name, Changed: y.changed(name)})
		}
	}
	return y.prune(all)
}
