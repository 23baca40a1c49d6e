package restore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/manifest"
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
		remote, err := s.ResumeStore.Load(ctx, remote)
		if err == nil {
			err = fetch(ctx, s.ResumeStore, remote, s.resumeDirectory())
		}
		if manifest.IsInvalid(err) {
			s.skipDamaged(r, s.ResumeStore.URIOf(remote), err.Error())
			continue
		}
		if err != nil {
			return err
		}
		if err := only(s.resumeDirectory(), remote.Name); err != nil {
			return err
		}
		r.Restored = Describe(remote.Manifest, s.ResumeStore.URIOf(remote))
		return nil
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
	here := volume.Directory{Path: filepath.Clean(s.ResumePath)}
	candidates, err := namedByPath(here, r)
	if err != nil {
		return err
	}
	for _, c := range candidates {
		m, err := verifyInPlace(ctx, c.directory, c.name)
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

// namedByPath are the checkpoints that a path means: the one that it is, or those at most two levels below. The volume may
// be read-only, and belong to another job: nothing is written there.
func namedByPath(here volume.Directory, r *Result) ([]candidate, error) {
	above := volume.Directory{Path: filepath.Dir(here.Path)}
	name := filepath.Base(here.Path)
	if manifest.IsName(name) || exists(here.Join(manifest.FileName)) {
		return inPlace(above, []string{name}, r)
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
		found, err := inPlace(folder, names, r)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	sortNewestFirst(all)
	return all, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// inPlace reads the manifests of checkpoints without writing anything.
func inPlace(d volume.Directory, names []string, r *Result) ([]candidate, error) {
	var all []candidate
	for _, name := range names {
		root, err := d.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		m, err := manifest.Read(root)
		_ = root.Close()
		switch {
		case errors.Is(err, fs.ErrNotExist):
			r.skip(d.Join(name), "it has no "+manifest.FileName)
		case manifest.IsInvalid(err):
			r.skip(d.Join(name), err.Error())
		case err != nil:
			return nil, err
		default: // there may be very many: the rest of the manifest is read again of the one that is chosen
			brief := &manifest.Manifest{Epoch: m.Epoch, Step: m.Step, Created: m.Created}
			all = append(all, candidate{directory: d, name: name, manifest: brief})
		}
	}
	return all, nil
}

func verifyInPlace(ctx context.Context, d volume.Directory, name string) (*manifest.Manifest, error) {
	root, err := d.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	m, err := manifest.Read(root)
	if errors.Is(err, fs.ErrNotExist) { // it has been deleted since it was found
		err = manifest.Invalid("it has no %s", manifest.FileName)
	}
	if err != nil {
		return nil, err
	}
	return m, manifest.Verify(ctx, root, m)
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
	return &NotFoundError{Message: fmt.Sprintf(
		"spec.checkpoint.resumeFrom: at %s %s: name a checkpoint, or a directory with one at most two levels below, or remove resumeFrom",
		where, why)}
}
