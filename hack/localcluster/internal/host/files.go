package host

import (
	"encoding/json"
	"errors"
	"fmt"
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

// SaveJSON writes v to path atomically: a crash leaves the old file or the new one. It makes the folder.
func SaveJSON(path string, v any) error {
	content, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return WriteFile(path, content, 0o644)
}

// LoadJSON reads path into v; found is false when there is no such file.
func LoadJSON(path string, v any) (found bool, err error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := json.Unmarshal(content, v); err != nil {
		return false, fmt.Errorf("read %s: %w", path, err)
	}
	return true, nil
}
