package volume

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/manifest"
)

// Verified remembers which checkpoints have been read and hashed, so that each is read once, and again only when a file
// of it has changed.
type Verified struct {
	Directory Directory
	known     map[string]verification
}

type verification struct {
	print    string
	manifest *manifest.Manifest
	err      error
}

// Check verifies a checkpoint, or returns what it found before.
func (v *Verified) Check(ctx context.Context, name string) (*manifest.Manifest, error) {
	m, err := v.Directory.Read(ctx, name)
	if err != nil {
		return nil, err
	}
	now := v.print(name, m)
	if before, ok := v.known[name]; ok && now != "" && before.print == now {
		return before.manifest, before.err
	}
	m, err = v.Directory.Verify(ctx, name)
	if err != nil && !manifest.IsInvalid(err) {
		return nil, err
	}
	if v.known == nil {
		v.known = map[string]verification{}
	}
	v.known[name] = verification{print: now, manifest: m, err: err}
	return m, err
}

// Forget drops what is known of checkpoints that are gone.
func (v *Verified) Forget(present []string) {
	maps.DeleteFunc(v.known, func(name string, _ verification) bool { return !slices.Contains(present, name) })
}

// print changes when a file is written again; empty when a file cannot be looked at.
func (v *Verified) print(name string, m *manifest.Manifest) string {
	text := []byte{}
	files := append([]manifest.File{{Path: manifest.FileName}}, m.Files...)
	for _, f := range files {
		info, err := os.Stat(filepath.Join(v.Directory.Join(name), filepath.FromSlash(f.Path)))
		if err != nil {
			return ""
		}
		text = info.ModTime().AppendFormat(text, time.RFC3339Nano)
		text = append(text, ' ')
	}
	return string(text)
}
