// Package unpack writes files of users into a directory, which they cannot leave: archives, layers of OCI artifacts, and single files.
package unpack

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/dcnlab/spot-training-operator/internal/content/tree"
)

// Limits bound what is written.
type Limits struct {
	// Files is the most files, links and directories. One that is replaced counts again.
	Files int
	// Bytes of all contents together.
	Bytes int64
	// Depth is the most parts of a path.
	Depth int
}

// CodeLimits are those of the code of a program.
var CodeLimits = Limits{Files: 10_000, Bytes: 1 << 30, Depth: 32}

// InvalidError says what is wrong with the content, and the remedy. Other errors are those of the disk, or of the connection that the
// content comes from.
type InvalidError struct{ Message string }

func (e *InvalidError) Error() string { return e.Message }

func invalid(format string, arguments ...any) error {
	return &InvalidError{Message: fmt.Sprintf(format, arguments...)}
}

// Tree is a directory that is written, by one call or several, such as for the layers of an artifact. After an error it is of no use.
//
// Files have the mode 0666, or 0777 when their owner may execute them, and directories 0777, whatever the umask: the program that uses
// them may run as another user. The directory itself keeps its mode.
type Tree struct {
	root   *os.Root
	limits Limits

	files, skipped int
	bytes          int64
	// directories are those known to be real ones.
	directories map[string]bool
	// layer has the paths of the layer that is unpacked; nil outside of one.
	layer map[string]bool
}

// New returns a tree that writes into root.
func New(root *os.Root, limits Limits) *Tree {
	return &Tree{root: root, limits: limits, directories: map[string]bool{".": true}}
}

// File writes a file. It replaces another of this name.
func (t *Tree) File(name string, executable bool, content io.Reader) error {
	describe := func(err error) error { return fmt.Errorf("read %s: %w", show(name), err) }
	return t.file(name, executable, &counted{content, t, describe})
}

func (t *Tree) file(name string, executable bool, content io.Reader) (err error) {
	place, err := t.prepare(name)
	if err != nil {
		return err
	}
	// What was there is removed: nothing is written through a link.
	file, err := t.root.OpenFile(place, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return ofPath(name, err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	mode := fs.FileMode(0o666)
	if executable {
		mode = 0o777
	}
	if err := file.Chmod(mode); err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return err
}

// Link writes a symbolic link. It replaces another file of this name.
func (t *Tree) Link(name, target string) error {
	place, err := t.prepare(name)
	if err != nil {
		return err
	}
	if strings.ContainsRune(target, 0) || !utf8.ValidString(target) {
		return invalid("the link %s has a target that is not UTF-8: replace it by a copy of the file", show(name))
	}
	if err := tree.CheckLink(place, target); err != nil {
		return invalid("the link %s %v", show(name), err)
	}
	return ofPath(name, t.root.Symlink(target, place))
}

// directory makes a directory with those above it.
func (t *Tree) directory(name string) error {
	place, err := t.place(name)
	if err != nil {
		return err
	}
	if t.directories[place] {
		if err := t.count(&t.skipped); err != nil {
			return err
		}
	}
	return t.make(name, place)
}

// prepare makes the directories above a file, and removes what the file replaces.
func (t *Tree) prepare(name string) (place string, err error) {
	if place, err = t.place(name); err != nil {
		return "", err
	}
	if place == "." {
		return "", invalid("the entry %s is the directory itself: give it a name", show(name))
	}
	if err := t.make(name, path.Dir(place)); err != nil {
		return "", err
	}
	if err := t.count(&t.files); err != nil {
		return "", err
	}
	if err := t.remove(name, place); err != nil {
		return "", err
	}
	t.mark(place)
	return place, nil
}

// remove removes what an entry replaces. Only layers replace directories.
func (t *Tree) remove(name, place string) error {
	info, err := t.root.Lstat(place)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return ofPath(name, err)
	case !info.IsDir():
		return t.root.Remove(place)
	case t.layer == nil || t.layer[place]:
		return invalid("the entry %s is a directory and a file: rename one of them", show(name))
	}
	clear(t.directories)
	t.directories["."] = true
	return t.root.RemoveAll(place)
}

// make makes a directory with those above it.
func (t *Tree) make(name, directory string) error {
	if t.directories[directory] {
		t.mark(directory)
		return nil
	}
	if err := t.make(name, path.Dir(directory)); err != nil {
		return err
	}
	info, err := t.root.Lstat(directory)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return ofPath(name, err)
	case info.IsDir():
		t.directories[directory] = true
		t.mark(directory)
		return nil
	case t.layer == nil || t.layer[directory] || directory != path.Clean(name): // only what a layer below has is replaced
		return invalid("the entry %s leads through %s, which is no directory: rename one of them", show(name), show(directory))
	default:
		if err := t.root.Remove(directory); err != nil {
			return err
		}
	}
	if err := t.count(&t.files); err != nil {
		return err
	}
	if err := t.root.Mkdir(directory, 0o700); err != nil {
		return ofPath(name, err)
	}
	t.directories[directory] = true
	t.mark(directory)
	return t.root.Chmod(directory, 0o777) // the program may run as another user
}

// mark notes that a path belongs to the layer.
func (t *Tree) mark(place string) {
	if t.layer != nil {
		t.layer[place] = true
	}
}

// count counts what is written, and as much again that is not, such as directories that exist.
func (t *Tree) count(number *int) error {
	if *number++; *number > t.limits.Files {
		return invalid("the source has more than %d files: leave out what the program does not need", t.limits.Files)
	}
	return nil
}

// place is the path of an entry below the root, in its shortest form.
func (t *Tree) place(name string) (string, error) {
	place := path.Clean(name)
	switch {
	case name == "" || strings.ContainsRune(name, 0) || !utf8.ValidString(name):
		return "", invalid("the entry %s has no valid name in UTF-8: rename it", show(name))
	case path.IsAbs(name):
		return "", invalid("the entry %s is an absolute path: pack the archive with names below the directory", show(name))
	case place == ".." || strings.HasPrefix(place, "../"):
		return "", invalid("the entry %s leads out of the directory: pack the archive with names below it", show(name))
	case strings.Count(place, "/") >= t.limits.Depth:
		return "", invalid("the entry %s has more than %d parts in its path: move it up", show(name), t.limits.Depth)
	}
	return place, nil
}

// counted counts the bytes that are read.
type counted struct {
	io.Reader
	tree     *Tree
	describe func(error) error
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if c.tree.bytes += int64(n); c.tree.bytes > c.tree.limits.Bytes {
		return 0, invalid("the source is more than %s: leave out what the program does not need", size(c.tree.limits.Bytes))
	}
	if err != nil && err != io.EOF { //nolint:errorlint // io.Copy compares, too
		err = c.describe(err)
	}
	return n, err
}

// ofPath is an InvalidError where the name is the cause.
func ofPath(name string, err error) error {
	if errors.Is(err, syscall.ENAMETOOLONG) {
		return invalid("the entry %s has a name that is too long: shorten it", show(name))
	}
	return err
}

// show is a name in a message: quoted where it has other than plain characters, and not too long.
func show(name string) string {
	const most = 200
	if len(name) > most {
		name = strings.ToValidUTF8(name[:most], "") + "..."
	}
	if quoted := strconv.Quote(name); quoted != `"`+name+`"` || name == "" {
		return quoted
	}
	return name
}

// size is a number of bytes in the largest unit that keeps it whole.
func size(bytes int64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB"}
	i := 0
	for ; i < len(units)-1 && bytes > 0 && bytes%1024 == 0; i++ {
		bytes /= 1024
	}
	return fmt.Sprintf("%d %s", bytes, units[i])
}
