package host

import (
	"io/fs"
	"os"
	"path/filepath"
)

// WriteFile writes a file atomically: a crash leaves the old one or the new one. It makes the folder.
func WriteFile(path string, content []byte, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path+".partial", content, mode); err != nil {
		return err
	}
	return os.Rename(path+".partial", path)
}
