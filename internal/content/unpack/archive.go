package unpack

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"strings"
)

const (
	// zipEndBytes is more than what lies behind the list of a zip file and may be read to find it.
	zipEndBytes = 128 << 10
	// zipListBytes is how much the list of a zip file may take for each file that is allowed. All of it is read into memory.
	zipListBytes = 512
	// maxTarget is the longest target of a link on Linux.
	maxTarget = 4095
)

// Archive unpacks a file that is a tar, tar.gz, tar.zst or zip file, as its first bytes say. Of several entries with one name the last
// counts.
func (t *Tree) Archive(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	all, first := io.NewSectionReader(file, 0, info.Size()), make([]byte, len(magicZip))
	if _, err = all.ReadAt(first, 0); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if magic := string(first); magic == magicZip || magic == magicNone {
		return t.zip(&bounded{ReaderAt: all, left: zipEndBytes + zipListBytes*int64(t.limits.Files)}, info.Size())
	}
	return t.Tar(all)
}

func (t *Tree) zip(file *bounded, size int64) error {
	archive, err := zip.NewReader(file, size)
	switch {
	case errors.Is(err, zip.ErrInsecurePath): // checked below
	case errors.Is(err, errList):
		return invalid("the list of files in the archive is too long: leave out what the program does not need")
	case errors.Is(err, zip.ErrFormat):
		return invalid("the archive ends too early, without its list of files: upload it again")
	case err != nil:
		return file.describe(err)
	}
	file.left = math.MaxInt64
	for _, entry := range archive.File {
		if err := t.zipped(file, entry); err != nil {
			return err
		}
	}
	return nil
}

// zipped writes one entry of a zip file.
func (t *Tree) zipped(file *bounded, entry *zip.File) error {
	const encrypted = 1
	mode := entry.Mode()
	switch {
	case strings.Contains(entry.Name, `\`):
		return invalid(`the entry %s has a \ in its name: pack the archive with / between the names of directories`, show(entry.Name))
	case entry.Flags&encrypted != 0:
		return invalid("the entry %s is encrypted: pack the archive without a password", show(entry.Name))
	case mode.IsDir():
		return t.directory(entry.Name)
	case !mode.IsRegular() && mode.Type() != fs.ModeSymlink:
		return invalid("the entry %s is a device or a pipe: pack the archive without it", show(entry.Name))
	}
	content, err := entry.Open()
	switch {
	case errors.Is(err, zip.ErrAlgorithm):
		return invalid("the entry %s is compressed by an unknown method: pack the archive with deflate", show(entry.Name))
	case err != nil:
		return file.describe(err)
	}
	defer func() { _ = content.Close() }()
	from := &counted{content, t, file.describe}
	if mode.IsRegular() {
		return t.file(entry.Name, mode&0o100 != 0, from)
	}
	target, err := io.ReadAll(io.LimitReader(from, maxTarget+1))
	if err != nil {
		return err
	}
	return t.Link(entry.Name, string(target))
}

// errList is that of a list of files that is too long.
var errList = errors.New("too long")

// bounded is a file with a bound to what may be read of it. It remembers the errors of the disk.
type bounded struct {
	io.ReaderAt
	left int64
	err  error
}

func (b *bounded) ReadAt(p []byte, offset int64) (int, error) {
	if b.left -= int64(len(p)); b.left < 0 {
		return 0, errList
	}
	n, err := b.ReaderAt.ReadAt(p, offset)
	if err != nil && !errors.Is(err, io.EOF) {
		b.err = err
	}
	return n, err
}

func (b *bounded) describe(err error) error {
	if b.err != nil {
		return fmt.Errorf("read the source: %w", b.err)
	}
	return (&remembering{}).describe(err)
}
