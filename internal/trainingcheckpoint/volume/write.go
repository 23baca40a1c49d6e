package volume

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/manifest"
)

// WriteFile writes a file that appears whole, and only once it is on the disk.
func WriteFile(dir, name string, content []byte) error {
	temporary := filepath.Join(dir, manifest.Unfinished(name))
	file, err := os.Create(temporary)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	err = errors.Join(err, file.Sync(), file.Close())
	if err == nil {
		err = os.Rename(temporary, filepath.Join(dir, name))
	}
	if err != nil {
		_ = os.Remove(temporary)
		return err
	}
	return SyncDirectory(dir)
}

// SyncDirectory makes renames in a directory durable.
func SyncDirectory(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	err = dir.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) { // a file system without it
		err = nil
	}
	return errors.Join(err, dir.Close())
}
