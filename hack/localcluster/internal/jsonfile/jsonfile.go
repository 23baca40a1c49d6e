// Package jsonfile keeps state in files.
package jsonfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/host"
)

// Save writes v to path atomically: a crash leaves the old file or the new one. It makes the folder.
func Save(path string, v any) error {
	content, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return host.WriteFile(path, content, 0o644)
}

// Load reads path into v; found is false when there is no such file.
func Load(path string, v any) (found bool, err error) {
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
