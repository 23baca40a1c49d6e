package store

import (
	"context"
	"errors"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/manifest"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/retention"
)

// Names below a job's area.
const (
	folderBlobs       = "blobs/sha256"
	folderCheckpoints = "checkpoints"
	folderWriters     = "writers"
	// folderCorrupt has an empty object for each blob that was read and is not what its name says, so that it is sent
	// again although it is there.
	folderCorrupt = "corrupt"
	// folderReaders has readers/<checkpoint>/<reader> while a checkpoint is being restored.
	folderReaders = "readers"
)

// readerLasts is how long a mark of a reader holds that did not remove it.
const readerLasts = 6 * time.Hour

// ErrSuperseded means that a later attempt of the job writes to the area.
var ErrSuperseded = errors.New("a later attempt of the job has begun")

// ErrOtherContent means that there is another valid checkpoint of the same name. It is kept.
var ErrOtherContent = errors.New("another valid checkpoint of this name is in the storage, and is kept")

// Area is what lies in a job's area.
type Area struct {
	// Checkpoints in it, valid or not, in no order.
	Checkpoints []retention.Checkpoint
	// Why those that are not valid are not, by name.
	Why map[string]string
	// Writer is the highest attempt that has left its mark, -1 when there is none.
	Writer int
	// Reading has the names of checkpoints that are being restored.
	Reading map[string]bool

	blobs   map[string]object
	corrupt map[string]bool
	// refs are the blobs that manifests refer to.
	refs map[string]bool
	// unsure: a manifest is invalid, or was listed and could not be found, so that what it refers to is not known.
	unsure bool
	// marks are the times of the attempts' marks, by the store's clock.
	marks map[int]time.Time
}

// Find returns a checkpoint of the area by name.
func (a *Area) Find(name string) (retention.Checkpoint, bool) {
	i := slices.IndexFunc(a.Checkpoints, func(c retention.Checkpoint) bool { return c.Name == name })
	if i < 0 {
		return retention.Checkpoint{}, false
	}
	return a.Checkpoints[i], true
}

// wrong says what is wrong with the content of files in the area; empty when all are there, and whole as far as is known.
func (a *Area) wrong(files ...manifest.File) string {
	for _, f := range files {
		b, ok := a.blobs[f.SHA256]
		switch {
		case !ok:
			return f.Path + " is missing in the storage"
		case b.size != f.Size:
			return f.Path + " has " + strconv.FormatInt(b.size, 10) + " bytes in the storage instead of " + strconv.FormatInt(f.Size, 10)
		case a.corrupt[f.SHA256]:
			return f.Path + " does not have the SHA-256 of its manifest in the storage"
		}
	}
	return ""
}

// Look lists the area.
func (s *Store) Look(ctx context.Context) (*Area, error) {
	a := &Area{
		Why: map[string]string{}, Writer: -1, Reading: map[string]bool{},
		blobs: map[string]object{}, corrupt: map[string]bool{}, refs: map[string]bool{}, marks: map[int]time.Time{},
	}
	manifests := map[string]object{}
	readers := map[string]time.Time{}
	err := s.list(ctx, s.folderKey(""), false, func(o object) { s.note(a, manifests, readers, o) })
	if err != nil {
		return nil, err
	}
	read := map[object]parsed{}
	for name, o := range manifests {
		m, err := s.manifest(ctx, o)
		if isNotFound(err) {
			a.unsure = true // deleted since it was listed, or the store lists and reads different things
			continue
		}
		if err != nil {
			return nil, err
		}
		read[o] = m
		a.add(name, m, o.changed)
	}
	s.mu.Lock()
	s.manifests = read
	s.mu.Unlock()
	now := a.now()
	for name, since := range readers {
		if now.Sub(since) < readerLasts {
			a.Reading[name] = true
		}
	}
	return a, nil
}

func (a *Area) add(name string, m parsed, changed time.Time) {
	if m.err != nil {
		a.Why[name], a.unsure = m.err.Error(), true
	} else {
		for _, f := range m.manifest.Files {
			a.refs[f.SHA256] = true
		}
		if why := a.wrong(m.manifest.Files...); why != "" {
			a.Why[name] = why
		}
	}
	a.Checkpoints = append(a.Checkpoints, retention.Checkpoint{Name: name, Manifest: m.manifest, Valid: a.Why[name] == "", Changed: changed})
}

func (s *Store) note(a *Area, manifests map[string]object, readers map[string]time.Time, o object) {
	name := strings.TrimPrefix(o.key, s.folderKey(""))
	folder, base := path.Split(name)
	switch folder = strings.Trim(folder, "/"); {
	case folder == folderBlobs:
		a.blobs[base] = o
	case folder == folderCorrupt:
		a.corrupt[base] = true
	case folder == folderWriters:
		if attempt, err := strconv.Atoi(base); err == nil {
			a.Writer = max(a.Writer, attempt)
			a.marks[attempt] = o.changed
		}
	case path.Dir(folder) == folderReaders:
		if read := path.Base(folder); o.changed.After(readers[read]) {
			readers[read] = o.changed
		}
	case path.Dir(folder) == folderCheckpoints && base == manifest.FileName && manifest.IsName(path.Base(folder)):
		manifests[path.Base(folder)] = o
	}
}

// now is the latest time that the store's clock is known to have shown.
func (a *Area) now() time.Time {
	times := slices.Collect(maps.Values(a.marks))
	for _, b := range a.blobs {
		times = append(times, b.changed)
	}
	return slices.MaxFunc(append(times, time.Time{}), time.Time.Compare)
}

// folderKey is the beginning of the keys in a folder of the area.
func (s *Store) folderKey(folder string) string {
	return strings.TrimPrefix(path.Join(s.Prefix, folder)+"/", "/")
}

// CheckpointURI names a checkpoint of the area for people and for resumeFrom.
func (s *Store) CheckpointURI(name string) string {
	return s.URIOf(s.Own(name))
}

func (s *Store) manifestKey(name string) string {
	return path.Join(s.Prefix, folderCheckpoints, name, manifest.FileName)
}

func (s *Store) blobKey(sum string) string { return path.Join(s.Prefix, folderBlobs, sum) }

// Mark leaves or renews the mark of an attempt, by which earlier ones see that they have to stop.
func (s *Store) Mark(ctx context.Context, attempt int) error {
	return s.write(ctx, path.Join(s.Prefix, folderWriters, strconv.Itoa(attempt)), []byte("{}"), false)
}

// Fence returns ErrSuperseded when a later attempt has left its mark.
func (s *Store) Fence(ctx context.Context, attempt int) error {
	superseded := false
	err := s.list(ctx, s.folderKey(folderWriters), false, func(o object) {
		if other, err := strconv.Atoi(path.Base(o.key)); err == nil && other > attempt {
			superseded = true
		}
	})
	if err == nil && superseded {
		return ErrSuperseded
	}
	return err
}

// parsed is a manifest without its text, which can be long and is only needed for what is restored, or why it is invalid.
type parsed struct {
	manifest *manifest.Manifest
	err      error
}

// manifest reads a manifest, unless it was read by the Look before.
func (s *Store) manifest(ctx context.Context, o object) (parsed, error) {
	s.mu.Lock()
	known, ok := s.manifests[o]
	s.mu.Unlock()
	if ok {
		return known, nil
	}
	text, err := s.read(ctx, o.key)
	if err != nil {
		return parsed{}, err
	}
	m, err := manifest.Parse(text)
	if err == nil {
		m.Text = nil
	}
	return parsed{m, err}, nil
}
