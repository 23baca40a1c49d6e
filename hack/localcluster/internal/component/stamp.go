package component

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/modfile"
)

// Version returns the version of the component's main module as its go.mod in dir requires it, or
// "own" for a component that is this project's own code.
func (c Component) Version(dir string) (string, error) {
	if c.Module == "" {
		return "own", nil
	}
	path := filepath.Join(dir, "go.mod")
	content, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read versions of %s: %w", c.Name, err)
	}
	mod, err := modfile.Parse(path, content, nil)
	if err != nil {
		return "", err
	}
	for _, require := range mod.Require {
		if require.Mod.Path == c.Module {
			return require.Mod.Version, nil
		}
	}
	return "", fmt.Errorf("%s does not require %s", path, c.Module)
}

// Stamp returns a digest of everything that decides what the component's programs are: the Go version,
// the build flags and every file of the component's folder dir (go.mod and go.sum pin the rest).
func (c Component) Stamp(dir, goVersion string) (string, error) {
	version, err := c.Version(dir)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	fmt.Fprintln(sum, goVersion, c.Name)
	for _, program := range c.Programs {
		fmt.Fprintln(sum, program.Name, c.buildArgs(program, version, program.Name))
	}
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		fmt.Fprintln(sum, name, len(content))
		_, err = sum.Write(content)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("read source of %s: %w", c.Name, err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// Current reports whether all programs of the component are in bin and were built with this stamp.
func (c Component) Current(bin, stamp string) bool {
	built, err := os.ReadFile(stampFile(bin, c.Name))
	if err != nil || strings.TrimSpace(string(built)) != stamp {
		return false
	}
	for _, program := range c.Programs {
		for _, name := range append([]string{program.Name}, program.Links...) {
			if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
				return false
			}
		}
	}
	return true
}

func stampFile(bin, name string) string { return filepath.Join(bin, ".stamps", name) }
