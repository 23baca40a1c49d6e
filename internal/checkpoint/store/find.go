package store

import (
	"context"
	"path"
	"slices"
	"strings"

	"github.com/dcnlab/spot-training-operator/internal/checkpoint/manifest"
	"github.com/dcnlab/spot-training-operator/internal/checkpoint/report"
)

// searchDepth is how many levels below a prefix checkpoints are looked for. The folder that holds the checkpoints of an
// area is no level of its own.
const searchDepth = 2

// Find returns the checkpoints at the store's location, the newest first: the one that it names, or those at most two
// levels below. Those whose manifest cannot be used are skipped.
func (s *Store) Find(ctx context.Context) ([]Remote, []report.Skipped, error) {
	keys, err := s.search(ctx, s.Prefix, searchDepth)
	if err != nil {
		return nil, nil, err
	}
	var found []Remote
	var skipped []report.Skipped
	for _, key := range keys {
		text, err := s.read(ctx, join(key, manifest.FileName))
		if isNotFound(err) {
			if manifest.IsName(path.Base(key)) {
				skipped = append(skipped, report.Skipped{Path: s.URI(key), Message: "it has no " + manifest.FileName})
			}
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		m, err := manifest.Parse(text)
		if err != nil {
			skipped = append(skipped, report.Skipped{Path: s.URI(key), Message: err.Error()})
			continue
		}
		found = append(found, Remote{Name: path.Base(key), Manifest: m, key: key})
	}
	slices.SortStableFunc(found, func(a, b Remote) int { return manifest.Compare(b.Manifest, a.Manifest) })
	return found, skipped, nil
}

// URIOf names a checkpoint for people and for resumeFrom.
func (s *Store) URIOf(r Remote) string { return s.URI(r.key) }

// Own makes a checkpoint of the job's own area ready for a download.
func (s *Store) Own(ctx context.Context, name string) (Remote, error) {
	text, err := s.read(ctx, s.manifestKey(name))
	if isNotFound(err) {
		return Remote{}, manifest.Invalid("it has no %s", manifest.FileName)
	}
	if err != nil {
		return Remote{}, err
	}
	m, err := manifest.Parse(text)
	return Remote{Name: name, Manifest: m, key: join(s.Prefix, folderCheckpoints, name)}, err
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
