package manifest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"
)

// bufferBytes is how much of a file is read at once.
const bufferBytes = 1 << 20

// Read reads the manifest of the checkpoint in dir and compares the sizes of its files. fs.ErrNotExist means that there
// is no manifest; an InvalidError, that the checkpoint is not what its manifest says.
func Read(dir *os.Root) (*Manifest, error) {
	info, err := dir.Stat(FileName)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > MaxBytes {
		return nil, Invalid("its %s is no file of at most %d bytes", FileName, MaxBytes)
	}
	text, err := dir.ReadFile(FileName)
	if err != nil {
		return nil, err
	}
	m, err := Parse(text)
	if err != nil {
		return nil, err
	}
	for _, f := range m.Files {
		if err := checkSize(dir, f); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// ofThePath says whether an error lies in the path itself, as one that leads out of the checkpoint or through a file, and so
// stays as it is; a disk or a server may work again.
func ofThePath(err error) bool {
	number, ofSystem := errors.AsType[syscall.Errno](err)
	return err != nil && (!ofSystem || slices.Contains([]syscall.Errno{syscall.ENOTDIR, syscall.ELOOP, syscall.ENAMETOOLONG}, number))
}

func checkSize(dir *os.Root, f File) error {
	info, err := dir.Stat(f.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Invalid("%s is missing", f.Path)
	case ofThePath(err):
		return Invalid("%s is no file within it: %v", f.Path, err)
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return Invalid("%s is no file", f.Path)
	case info.Size() != f.Size:
		return Invalid("%s has %d bytes instead of %d", f.Path, info.Size(), f.Size)
	}
	return nil
}

// Verify reads all files of the checkpoint in dir and compares their SHA-256 with the manifest's. An InvalidError says
// what differs.
func Verify(ctx context.Context, dir *os.Root, m *Manifest) error {
	for _, f := range m.Files {
		sum, size, err := sumOf(ctx, dir, f.Path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return Invalid("%s is missing", f.Path)
		case err != nil:
			return err
		case size != f.Size:
			return Invalid("%s has %d bytes instead of %d", f.Path, size, f.Size)
		case sum != f.SHA256:
			return Mismatch(f.Path)
		}
	}
	return nil
}

// Mismatch is the error of a file whose content is not the manifest's.
func Mismatch(file string) error {
	return Invalid("%s does not have the SHA-256 of its %s", file, FileName)
}

// Make makes the manifest of the checkpoint in dir, which has none, by reading all its files. Files with hidden names count:
// PyTorch's distributed checkpoints have one.
func Make(ctx context.Context, dir *os.Root, name string) (*Manifest, error) {
	info, err := dir.Stat(".")
	if err != nil {
		return nil, err
	}
	var files []File
	err = fs.WalkDir(dir.FS(), ".", func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir(), file == Unfinished(FileName): // left by an agent that was killed, and soon overwritten
			return nil
		case !entry.Type().IsRegular():
			return Invalid("%s is neither a file nor a directory, which a checkpoint without %s cannot hold", file, FileName)
		}
		sum, size, err := sumOf(ctx, dir, file)
		if err != nil {
			return err
		}
		files = append(files, File{Path: file, Size: size, SHA256: sum})
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, Invalid("it has no files")
	}
	return New(name, info.ModTime(), files)
}

func sumOf(ctx context.Context, dir *os.Root, name string) (sum string, size int64, err error) {
	file, err := dir.Open(name)
	if err != nil {
		return "", 0, err
	}
	defer func() { _ = file.Close() }()
	h := sha256.New()
	size, err = Copy(ctx, h, file)
	if err != nil {
		return "", 0, fmt.Errorf("read %s: %w", name, err)
	}
	return Sum(h), size, nil
}

// Sum is the value of h in hexadecimal.
func Sum(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

// Copy copies from r to w in big steps, until the end or until ctx is done.
func Copy(ctx context.Context, w io.Writer, r io.Reader) (int64, error) {
	untilDone := reader(func(p []byte) (int, error) {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		return r.Read(p)
	})
	return io.CopyBuffer(struct{ io.Writer }{w}, untilDone, make([]byte, bufferBytes)) // a ReadFrom of w would have steps of its own
}

type reader func(p []byte) (int, error)

func (r reader) Read(p []byte) (int, error) { return r(p) }
