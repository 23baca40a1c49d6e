package image

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"path/filepath"
)

// Stamp returns a digest of the specification and of the size and time of every file that it takes, by which to
// see, without reading gigabytes, that an image would come out as before.
func (s Spec) Stamp() (string, error) {
	sum := sha256.New()
	if err := json.NewEncoder(sum).Encode(s); err != nil {
		return "", err
	}
	sources := make([]string, 0, len(s.Files)+2)
	for _, file := range s.Files {
		sources = append(sources, file.Source)
	}
	if s.RootFS != "" {
		sources = append(sources, s.RootFS)
	}
	if s.CACertificates {
		sources = append(sources, caBundle)
	}
	for _, source := range sources {
		resolved, err := filepath.EvalSymlinks(source)
		if err != nil {
			return "", fmt.Errorf("file for the image: %w", err)
		}
		err = filepath.WalkDir(resolved, func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := entry.Info()
			if err != nil {
				return err
			}
			fmt.Fprintln(sum, path, info.Mode(), info.Size(), info.ModTime().UnixNano())
			return nil
		})
		if err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
