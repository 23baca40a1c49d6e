package component

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// CopySelf puts the running executable into the file target, so that background processes do not
// depend on where it was started from ("go run" deletes its executable).
func CopySelf(target string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dir := filepath.Dir(target)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	source, err := os.Open(self)
	if err != nil {
		return fmt.Errorf("open own executable: %w", err)
	}
	defer source.Close()
	partial, err := os.CreateTemp(dir, "."+filepath.Base(target)+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(partial.Name())
	_, err = io.Copy(partial, source)
	if err := errors.Join(err, partial.Chmod(0o755), partial.Close()); err != nil {
		return fmt.Errorf("copy own executable to %s: %w", dir, err)
	}
	return os.Rename(partial.Name(), target)
}
