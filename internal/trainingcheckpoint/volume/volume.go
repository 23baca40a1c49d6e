// Package volume is the directory in which a job's training keeps its checkpoints: on a claim, on NFS, or on the node
// when they are kept in an object store. Names that begin with a dot are hidden: no program takes them for checkpoints.
package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/manifest"
)

// Hidden names, by what they begin with.
const (
	// corruptPrefix is for checkpoints that are damaged. They are kept for a human to look at.
	corruptPrefix = ".corrupt-"
	// deletingPrefix is for checkpoints that are being deleted.
	deletingPrefix = ".deleting-"
	// RestoringPrefix is for checkpoints that are being brought back from an object store.
	RestoringPrefix = ".restoring-"
	// writers has a file for each attempt whose agent has written here.
	writers = ".agent-writers"
)

// Directory is a job's directory. It need not exist.
type Directory struct {
	Path string
	// Foreign: it may belong to another job and be read-only, and nothing is written there.
	Foreign bool
}

// Create makes the directory and those above it. Each gets the mode of the one above, because the training may run as
// another user than the agent, and every user that may write to the volume must be able to write here.
func (d Directory) Create() error { return createLike(d.Path) }

func createLike(path string) error {
	info, err := os.Stat(path)
	switch {
	case err == nil && !info.IsDir():
		return fmt.Errorf("%s: %w", path, syscall.ENOTDIR)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	parent := filepath.Dir(path)
	if err := createLike(parent); err != nil {
		return err
	}
	if info, err = os.Stat(parent); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o755); errors.Is(err, fs.ErrExist) { //nolint:gosec // gets the permissions of its parent below
		return nil
	} else if err != nil {
		return err
	}
	const inherited = fs.ModePerm | fs.ModeSetgid
	if err := os.Chmod(path, info.Mode()&inherited); !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil
}

// Names are those of the checkpoints in the directory, valid or not. A directory that does not exist has none.
func (d Directory) Names() ([]string, error) {
	entries, err := os.ReadDir(d.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, entry := range entries {
		if entry.IsDir() && manifest.IsName(entry.Name()) {
			names = append(names, entry.Name())
		}
	}
	return names, nil
}

// Join is the path of something in the directory.
func (d Directory) Join(name string) string { return filepath.Join(d.Path, name) }

// Open opens a checkpoint in a way that nothing outside of it can be reached by its files.
func (d Directory) Open(name string) (*os.Root, error) { return os.OpenRoot(d.Join(name)) }

// Read reads the manifest of a checkpoint and checks the sizes. With a checkpoint that has none it makes one, since an
// atomic rename has made the checkpoint visible complete, and writes it into the checkpoint; in a foreign directory that is an InvalidError.
func (d Directory) Read(ctx context.Context, name string) (*manifest.Manifest, error) {
	return d.check(ctx, name, func(context.Context, *os.Root, *manifest.Manifest) error { return nil })
}

// Verify reads a checkpoint and compares the SHA-256 of all files.
func (d Directory) Verify(ctx context.Context, name string) (*manifest.Manifest, error) {
	return d.check(ctx, name, manifest.Verify)
}

// check reads a checkpoint, again when it was replaced or removed while it was read: its files go after its name does.
func (d Directory) check(
	ctx context.Context, name string, further func(context.Context, *os.Root, *manifest.Manifest) error,
) (*manifest.Manifest, error) {
	for {
		root, err := d.Open(name)
		if err != nil {
			return nil, err
		}
		m, err := d.checkIn(ctx, root, name, further)
		replaced := manifest.IsInvalid(err) && !d.isAt(name, root)
		_ = root.Close()
		if !replaced {
			return m, err
		}
	}
}

// isAt says whether an open directory still is the one of the name.
func (d Directory) isAt(name string, root *os.Root) bool {
	open, err := root.Stat(".")
	if err != nil {
		return false
	}
	named, err := os.Stat(d.Join(name))
	return err == nil && os.SameFile(open, named)
}

func (d Directory) checkIn(
	ctx context.Context, root *os.Root, name string, further func(context.Context, *os.Root, *manifest.Manifest) error,
) (*manifest.Manifest, error) {
	m, err := manifest.Read(root)
	switch {
	case errors.Is(err, fs.ErrNotExist) && d.Foreign:
		return nil, manifest.Invalid("it has no %s", manifest.FileName)
	case errors.Is(err, fs.ErrNotExist):
		if m, err = manifest.Make(ctx, root, name); err != nil {
			return nil, err
		}
		if !d.isAt(name, root) { // the manifest may be of half of its files
			return nil, manifest.Invalid("it is gone")
		}
		if err := WriteFile(d.Join(name), manifest.FileName, m.Text); err != nil {
			return nil, fmt.Errorf("write the %s that %s lacks: %w", manifest.FileName, name, err)
		}
	case err != nil:
		return nil, err
	}
	return m, further(ctx, root, m)
}

// Exists says whether a checkpoint is there still: its program deletes old ones, too.
func (d Directory) Exists(name string) bool {
	_, err := os.Stat(d.Join(name))
	return !errors.Is(err, fs.ErrNotExist)
}

// Hide renames a damaged checkpoint so that no program loads it, and returns the new name.
func (d Directory) Hide(name string) (string, error) {
	for i := range 1000 {
		hidden := corruptPrefix + name
		if i > 0 {
			hidden += "-" + strconv.Itoa(i)
		}
		// No RENAME_NOREPLACE: NFS has none. Renaming onto a directory that has files fails, too.
		if _, err := os.Lstat(d.Join(hidden)); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		return hidden, os.Rename(d.Join(name), d.Join(hidden))
	}
	return "", fmt.Errorf("there are 1000 damaged checkpoints %s: delete some of %s", name, d.Join(corruptPrefix+name+"*"))
}

// Remove deletes a checkpoint. It vanishes at once, whatever time its files take.
func (d Directory) Remove(name string) error {
	// What cannot be emptied must not be half deleted: the program that wrote it can delete it.
	if err := unix.Access(d.Join(name), unix.W_OK|unix.X_OK); err != nil {
		return &fs.PathError{Op: "delete", Path: d.Join(name), Err: err}
	}
	hidden := d.Join(deletingPrefix + name)
	if err := os.RemoveAll(hidden); err != nil {
		return err
	}
	if err := os.Rename(d.Join(name), hidden); err != nil {
		return err
	}
	return os.RemoveAll(hidden)
}

// Clean deletes what is left of checkpoints whose removal was cut off.
func (d Directory) Clean() error {
	entries, err := os.ReadDir(d.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), deletingPrefix) {
			err = errors.Join(err, os.RemoveAll(d.Join(entry.Name())))
		}
	}
	return err
}

// Free is the space that is left for the training, in bytes.
func (d Directory) Free() (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(d.Path, &s); err != nil {
		return 0, &fs.PathError{Op: "statfs", Path: d.Path, Err: err}
	}
	return int64(s.Bavail) * int64(s.Bsize), nil //nolint:gosec // fewer bytes than a disk can have
}

// Claim leaves the mark of an attempt. Newest tells whether a later attempt has done so.
func (d Directory) Claim(attempt int) error {
	folder := d.Join(writers)
	if err := createLike(folder); err != nil {
		return err
	}
	name := filepath.Join(folder, strconv.Itoa(attempt))
	if _, err := os.Stat(name); err == nil {
		return nil
	}
	return os.WriteFile(name, nil, 0o644) //nolint:gosec // an empty mark that pods of other users read
}

// Newest is the highest attempt that has left its mark, at least 0.
func (d Directory) Newest() (int, error) {
	entries, err := os.ReadDir(d.Join(writers))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	newest := 0
	for _, entry := range entries {
		if attempt, err := strconv.Atoi(entry.Name()); err == nil {
			newest = max(newest, attempt)
		}
	}
	return newest, err
}

// Below are the directories in which RESUME_FROM looks for checkpoints: the one itself and the visible ones in it that
// are no checkpoints, one level down.
func (d Directory) Below() ([]Directory, error) {
	entries, err := os.ReadDir(d.Path)
	if err != nil {
		return nil, err
	}
	all := []Directory{d}
	for _, entry := range entries {
		if entry.IsDir() && !strings.HasPrefix(entry.Name(), ".") && !manifest.IsName(entry.Name()) {
			all = append(all, Directory{Path: d.Join(entry.Name()), Foreign: d.Foreign})
		}
	}
	return all, nil
}
