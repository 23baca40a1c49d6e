// Package restore brings a checkpoint to where the training looks for it: the newest valid one of the job itself, else the
// one that RESUME_FROM names. Damaged ones are passed over, and never deleted.
package restore

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/manifest"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/report"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/retention"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/store"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/volume"
)

// ResumeFolder is where a checkpoint of RESUME_FROM is brought to, below the job's directory. Its name is hidden, so that
// it does not count as one of the job's own.
const ResumeFolder = ".resume"

// Settings of a restore.
type Settings struct {
	// Directory of the job's checkpoints, as the training sees it.
	Directory volume.Directory
	// Store of the job's checkpoints; nil when they are kept in Directory.
	Store *store.Store
	// ResumePath or ResumeStore is what RESUME_FROM names; empty and nil when it is not set.
	ResumePath  string
	ResumeStore *store.Store
	// ResumeOptional: that there is nothing to resume from is no error.
	ResumeOptional bool
	Log            *slog.Logger
}

// Result is what the training starts from.
type Result struct {
	// Restored is nil when the training begins at the first epoch.
	Restored *report.Checkpoint `json:"checkpoint,omitempty"`
	// Name of the restored one, when it is the job's own.
	Name string `json:"name,omitempty"`
	// Skipped are those that are damaged.
	Skipped []report.Skipped `json:"skipped,omitempty"`
}

// Run does it once. All errors may go away by themselves but a report.Problem with the reason CheckpointNotFound: there is nothing to
// resume from.
func Run(ctx context.Context, s Settings) (Result, error) {
	var r Result
	if err := own(ctx, s, &r); err != nil || r.Restored != nil {
		return r, err
	}
	var err error
	switch {
	case s.ResumeStore != nil:
		if err = resumeFromStore(ctx, s, &r); err != nil {
			err = s.ResumeStore.Explain(err) // in the words of this store, and not of the job's own
		}
	case s.ResumePath != "":
		err = resumeFromPath(ctx, s, &r)
	}
	return r, err
}

// own looks for the job's own checkpoints: in its directory, and in its store.
func own(ctx context.Context, s Settings, r *Result) error {
	name, local, err := newestLocal(ctx, s, r)
	if err != nil {
		return err
	}
	path := s.Directory.Join(name)
	if s.Store != nil {
		if err := fromStore(ctx, s, local, r); err != nil || r.Restored != nil {
			return err
		}
		path = s.Store.CheckpointURI(name)
	}
	if local != nil {
		r.Name, r.Restored = name, Describe(local, path)
	}
	return nil
}

// newestLocal returns the newest valid checkpoint in the job's directory, and hides the damaged ones that a program would
// take for newer.
func newestLocal(ctx context.Context, s Settings, r *Result) (string, *manifest.Manifest, error) {
	names, err := s.Directory.Names()
	if err != nil {
		return "", nil, err
	}
	candidates, unreadable, err := readable(ctx, s.Directory, names)
	if err != nil {
		return "", nil, err
	}
	for _, bad := range unreadable {
		if err := hide(s, bad.name, bad.why, r); err != nil {
			return "", nil, err
		}
	}
	for _, c := range candidates {
		m, err := s.Directory.Verify(ctx, c.name)
		if !manifest.IsInvalid(err) {
			return c.name, m, err
		}
		if err := hide(s, c.name, err.Error(), r); err != nil {
			return "", nil, err
		}
	}
	return "", nil, nil
}

func hide(s Settings, name, why string, r *Result) error {
	hidden, err := s.Directory.Hide(name)
	if err != nil {
		return err
	}
	s.Log.Warn("checkpoint is damaged and is skipped", "checkpoint", name, "why", why, "renamed", hidden)
	r.skip(s.Directory.Join(hidden), why)
	return nil
}

func (r *Result) skip(path, why string) {
	if !slices.ContainsFunc(r.Skipped, func(known report.Skipped) bool { return known.Path == path }) {
		r.Skipped = append(r.Skipped, report.Skipped{Path: path, Message: why})
	}
}

// skipDamaged also logs it.
func (s Settings) skipDamaged(r *Result, path, why string) {
	s.Log.Warn("checkpoint is damaged and is skipped", "checkpoint", path, "why", why)
	r.skip(path, why)
}

// candidate is a checkpoint whose manifest can be read and whose files have the right sizes.
type candidate struct {
	directory volume.Directory
	name      string
	manifest  *manifest.Manifest
	why       string
}

// readable lists checkpoints of a directory, the newest first, and those that cannot be read. There may be very many, so that only what
// orders them is kept of their manifests; the rest is read again of the one that is chosen.
func readable(ctx context.Context, d volume.Directory, names []string) (good, bad []candidate, err error) {
	for _, name := range names {
		m, err := d.Read(ctx, name)
		switch {
		case manifest.IsInvalid(err):
			bad = append(bad, candidate{directory: d, name: name, why: err.Error()})
		case errors.Is(err, fs.ErrNotExist) && !d.Exists(name):
		case err != nil:
			return nil, nil, err
		default:
			good = append(good, candidate{directory: d, name: name, manifest: m.Brief()})
		}
	}
	sortNewestFirst(good)
	return good, bad, nil
}

func sortNewestFirst(all []candidate) {
	slices.SortStableFunc(all, func(a, b candidate) int { return manifest.Compare(b.manifest, a.manifest) })
}

// fromStore brings the newest valid checkpoint of the job's area to its directory, unless the one there is as new.
func fromStore(ctx context.Context, s Settings, local *manifest.Manifest, r *Result) error {
	area, err := s.Store.Look(ctx)
	if err != nil {
		return err
	}
	for name, why := range area.Why {
		s.skipDamaged(r, s.Store.CheckpointURI(name), why)
	}
	for _, c := range retention.Valid(area.Checkpoints) {
		if local != nil && manifest.Compare(local, c.Manifest) >= 0 {
			break
		}
		if done, err := s.bring(ctx, s.Store, s.Store.Own(c.Name), s.Directory, r); done || err != nil {
			r.Name = c.Name
			return err
		}
	}
	return nil
}

// bring brings a checkpoint of a store to a directory, to start from it; false when it is damaged.
func (s Settings) bring(ctx context.Context, from *store.Store, remote store.Remote, to volume.Directory, r *Result) (done bool, err error) {
	remote, err = from.Load(ctx, remote)
	if err == nil {
		err = fetch(ctx, from, remote, to)
	}
	if manifest.IsInvalid(err) {
		s.skipDamaged(r, from.URIOf(remote), err.Error())
		return false, nil
	}
	if err == nil {
		r.Restored = Describe(remote.Manifest, from.URIOf(remote))
	}
	return err == nil, err
}

// fetch brings a checkpoint to a directory, unless it is there already.
func fetch(ctx context.Context, from *store.Store, remote store.Remote, to volume.Directory) error {
	if to.Exists(remote.Name) {
		m, err := to.Verify(ctx, remote.Name)
		if err == nil && manifest.Compare(m, remote.Manifest) == 0 {
			return nil
		}
		if err != nil && !manifest.IsInvalid(err) {
			return err
		}
		if _, err := to.Hide(remote.Name); err != nil {
			return err
		}
	}
	return from.Fetch(ctx, remote, to.Path)
}

// Describe is a checkpoint in the words of a report.
func Describe(m *manifest.Manifest, path string) *report.Checkpoint {
	return &report.Checkpoint{Path: path, Epoch: m.Epoch, Step: m.Step, SizeBytes: m.SizeBytes(), Time: m.Created.UTC()}
}

// resumeDirectory is where a checkpoint of another storage is brought to.
func (s Settings) resumeDirectory() volume.Directory {
	return volume.Directory{Path: filepath.Join(s.Directory.Path, ResumeFolder)}
}
