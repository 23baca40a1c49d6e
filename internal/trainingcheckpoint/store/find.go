package store

import (
	"context"
	"path"
	"slices"
	"strings"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/manifest"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/report"
)

// searchDepth is how many levels below a prefix checkpoints are looked for. The folder that holds the checkpoints of an
// area is no level of its own.
const searchDepth = 2

// maxSkipped bounds what Find reports about checkpoints that cannot be used.
const maxSkipped = 20

// Find returns the checkpoints at the store's location, the newest first: the one that it names, or those at most two
// levels below. Those whose manifest cannot be used are skipped. There may be very many, so that only what orders them is
// kept of their manifests; Load reads the rest of the one that is chosen.
func (s *Store) Find(ctx context.Context) ([]Remote, []report.Skipped, error) {
	keys, err := s.search(ctx, s.Prefix, searchDepth)
	if err != nil {
		return nil, nil, err
	}
	var found []Remote
	var skipped []report.Skipped
	skip := func(key, why string) {
		if len(skipped) < maxSkipped {
			skipped = append(skipped, report.Skipped{Path: s.URI(key), Message: why})
		}
	}
	for _, key := range keys {
		m, err := s.manifestAt(ctx, key)
		switch {
		case isNotFound(err):
			if manifest.IsName(path.Base(key)) {
				skip(key, "it has no "+manifest.FileName)
			}
		case manifest.IsInvalid(err):
			skip(key, err.Error())
		case err != nil:
			return nil, nil, err
		default:
			name := path.Base(key)
			if !manifest.IsName(name) { // it lies under another name, or at the top of the bucket under none
				name = m.Name()
			}
			found = append(found, Remote{Name: name, Manifest: m.Brief(), key: key})
		}
	}
	slices.SortStableFunc(found, func(a, b Remote) int { return manifest.Compare(b.Manifest, a.Manifest) })
	return found, skipped, nil
}

// Load reads the whole manifest of a checkpoint that Find has found.
func (s *Store) Load(ctx context.Context, r Remote) (Remote, error) {
	m, err := s.manifestAt(ctx, r.key)
	if isNotFound(err) {
		err = manifest.Invalid("it has no %s", manifest.FileName)
	}
	r.Manifest = m
	return r, err
}

func (s *Store) manifestAt(ctx context.Context, key string) (*manifest.Manifest, error) {
	text, err := s.read(ctx, path.Join(key, manifest.FileName))
	if err != nil {
		return nil, err
	}
	return manifest.Parse(text)
}

// URIOf names a checkpoint for people and for resumeFrom.
func (s *Store) URIOf(r Remote) string { return s.URI(r.key) }

// Own names a checkpoint of the job's own area, to be loaded.
func (s *Store) Own(name string) Remote {
	return Remote{Name: name, key: path.Join(s.Prefix, folderCheckpoints, name)}
}

// search returns the keys of folders that may be checkpoints.
func (s *Store) search(ctx context.Context, key string, depth int) ([]string, error) {
	prefix := key
	if prefix != "" {
		prefix += "/"
	}
	var keys, folders []string
	err := s.list(ctx, prefix, true, func(o object) {
		switch {
		case o.folder:
			folders = append(folders, strings.TrimSuffix(o.key, "/"))
		case path.Base(o.key) == manifest.FileName:
			keys = append(keys, key)
		}
	})
	if err != nil || len(keys) > 0 {
		return keys, err
	}
	if manifest.IsName(path.Base(key)) {
		if len(folders) > 0 {
			keys = append(keys, key) // for the message that it has no manifest
		}
		return keys, nil
	}
	for _, folder := range folders {
		below, err := s.searchFolder(ctx, folder, depth)
		if err != nil {
			return nil, err
		}
		keys = append(keys, below...)
	}
	return keys, nil
}

func (s *Store) searchFolder(ctx context.Context, folder string, depth int) ([]string, error) {
	switch base := path.Base(folder); {
	case depth <= 0:
		return nil, nil
	case manifest.IsName(base):
		return []string{folder}, nil
	case base == folderCheckpoints:
		return s.search(ctx, folder, depth)
	case base == path.Dir(folderBlobs), base == folderWriters, base == folderCorrupt, base == folderReaders, base[0] == '.':
		return nil, nil
	}
	return s.search(ctx, folder, depth-1)
}
