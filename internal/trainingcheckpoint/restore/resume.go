package restore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/manifest"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/report"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/volume"
)

// resumeFromStore brings the newest valid checkpoint that RESUME_FROM means from its store.
func resumeFromStore(ctx context.Context, s Settings, r *Result) error {
	found, skipped, err := s.ResumeStore.Find(ctx)
	if err != nil {
		return err
	}
	for _, bad := range skipped {
		r.skip(bad.Path, bad.Message)
	}
	for _, remote := range found {
		done, err := s.bring(ctx, s.ResumeStore, remote, s.resumeDirectory(), r)
		if err != nil {
			return err
		}
		if done {
			return only(s.resumeDirectory(), remote.Name)
		}
	}
	return s.nothing(s.ResumeStore.String(), r)
}

// only removes what an earlier restore brought to the same place: the directory must hold one checkpoint.
func only(d volume.Directory, name string) error {
	names, err := d.Names()
	for _, other := range names {
		if other != name {
			err = errors.Join(err, d.Remove(other))
		}
	}
	return err
}

// resumeFromPath checks what RESUME_FROM names in a mounted volume. The training reads it there itself.
func resumeFromPath(ctx context.Context, s Settings, r *Result) error {
	candidates, err := namedByPath(ctx, volume.Directory{Path: filepath.Clean(s.ResumePath), Foreign: true}, r)
	if err != nil {
		return err
	}
	for _, c := range candidates {
		m, err := c.directory.Verify(ctx, c.name)
		if err == nil {
			r.Restored = Describe(m, c.directory.Join(c.name))
			return nil
		}
		if !manifest.IsInvalid(err) {
			return err
		}
		s.skipDamaged(r, c.directory.Join(c.name), err.Error())
	}
	return s.nothing(s.ResumePath, r)
}

// namedByPath are the checkpoints that a path means: the one that it is, or those at most two levels below.
func namedByPath(ctx context.Context, here volume.Directory, r *Result) ([]candidate, error) {
	if name := filepath.Base(here.Path); manifest.IsName(name) || here.Exists(manifest.FileName) {
		above := volume.Directory{Path: filepath.Dir(here.Path), Foreign: true}
		return inPlace(ctx, above, []string{name}, r)
	}
	folders, err := here.Below()
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []candidate
	for _, folder := range folders {
		names, err := folder.Names()
		if errors.Is(err, fs.ErrPermission) && folder != here {
			continue // as lost+found of another user's
		}
		if err != nil {
			return nil, err
		}
		found, err := inPlace(ctx, folder, names, r)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	sortNewestFirst(all)
	return all, nil
}

func inPlace(ctx context.Context, d volume.Directory, names []string, r *Result) ([]candidate, error) {
	good, bad, err := readable(ctx, d, names)
	for _, c := range bad {
		r.skip(d.Join(c.name), c.why)
	}
	return good, err
}

// nothing is the end of a search without result.
func (s Settings) nothing(where string, r *Result) error {
	if s.ResumeOptional {
		return nil
	}
	why := "there is no checkpoint"
	if n := len(r.Skipped); n > 0 {
		var parts []string
		for _, skipped := range r.Skipped[:min(n, 2)] {
			parts = append(parts, filepath.Base(skipped.Path)+": "+skipped.Message)
		}
		why = fmt.Sprintf("no checkpoint is valid (%s)", strings.Join(parts, "; "))
	}
	return report.NewProblem(report.ReasonCheckpointNotFound,
		"spec.checkpoint.resumeFrom: at %s %s: name a checkpoint, or a directory with one at most two levels below, or remove resumeFrom",
		where, why)
}
