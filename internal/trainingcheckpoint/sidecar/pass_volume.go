package sidecar

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/manifest"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/retention"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/store"
)

// passVolume verifies new checkpoints where they are kept, and deletes those beyond the number to keep.
func (y *syncer) passVolume(ctx context.Context, names []string, local map[string]*manifest.Manifest) error {
	y.verified.Forget(names)
	var unread error
	var all []retention.Checkpoint
	for _, name := range names {
		c := retention.Checkpoint{Name: name, Manifest: local[name], Changed: y.changed(name)}
		if m := local[name]; m != nil {
			_, err := y.verified.Check(ctx, name)
			switch {
			case manifest.IsInvalid(err):
				y.condemn(name, m, err)
			case err != nil && !y.Directory.Exists(name):
				continue
			case err != nil: // it hinders none of the others, and is not deleted
				unread = errors.Join(unread, err)
				continue
			default:
				c.Valid = true
			}
		}
		all = append(all, c)
	}
	valid := retention.Valid(all)
	y.protect(valid)
	y.publish(valid, nil)
	if err := y.fenceVolume(); err != nil {
		return err
	}
	if unread != nil { // what is newest is not known
		return unread
	}
	err := y.prune(all)
	left := slices.DeleteFunc(slices.Clone(valid), func(c retention.Checkpoint) bool { return !y.Directory.Exists(c.Name) })
	if len(left) < len(valid) {
		y.publish(left, nil)
	}
	return err
}

// protect notes what the training may have started from: the newest valid one when the agent began, and what was restored.
func (y *syncer) protect(valid []retention.Checkpoint) {
	if len(y.protected) > 0 {
		return
	}
	y.protected[y.restored.Name] = true
	for _, c := range valid {
		if slices.Contains(y.initial, c.Name) {
			y.protected[c.Name] = true
			return
		}
	}
}

// fenceVolume returns ErrSuperseded when a later attempt writes to the volume.
func (y *syncer) fenceVolume() error {
	newest, err := y.Directory.Newest()
	if err != nil {
		return err
	}
	if newest > y.Attempt {
		return store.ErrSuperseded
	}
	if !y.Directory.Exists("") {
		return nil // nothing is written yet
	}
	return y.Directory.Claim(y.Attempt)
}

// prune deletes checkpoints in the directory beyond the number to keep. What may not be deleted by this user is left to the
// training, which has its own retention.
func (y *syncer) prune(all []retention.Checkpoint) error {
	for _, name := range retention.Surplus(all, y.Retention, func(name string) bool { return y.protected[name] }) {
		err := y.Directory.Remove(name)
		switch {
		case err == nil:
			y.Log.Info("checkpoint deleted", "checkpoint", name)
		case errors.Is(err, fs.ErrPermission):
			y.Log.Debug("checkpoint belongs to another user and is left to the training to delete", "checkpoint", name)
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
	}
	return nil
}

func (y *syncer) changed(name string) time.Time {
	info, err := os.Stat(y.Directory.Join(name))
	if err != nil {
		return time.Now() // gone, or not to be judged: it counts as new
	}
	return info.ModTime()
}
