// Package tree computes the digest of the files in a directory. It does not depend on where the files come from: their times, owners and
// other permissions do not count, and neither do empty directories.
//
// The digest is "sha256:" and, in lower-case hexadecimal, the SHA-256 of these records, one for each regular file and each symbolic link
// in the order of the bytes of their paths:
//
//	the length of the path in bytes   8 bytes, big-endian
//	the path                          relative to the directory, UTF-8, with slashes and no ./ in front
//	the kind                          1 byte: "x" of a file that its owner may execute, "f" of another, "l" of a symbolic link
//	the length of the value in bytes  8 bytes, big-endian
//	the value                         the 32 bytes of the SHA-256 of the content of a file; the target of a link as it is
//
// In Python, with entries as tuples of three byte strings:
//
//	digest = hashlib.sha256()
//	for path, kind, value in sorted(entries):
//	    digest.update(struct.pack(">Q", len(path)) + path + kind + struct.pack(">Q", len(value)) + value)
package tree

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"unicode/utf8"
)

// Sum is the digest of a tree, with its size.
type Sum struct {
	// Digest is "sha256:" and 64 hexadecimal digits.
	Digest string
	// SizeBytes of all files. Links count nothing.
	SizeBytes int64
	// Files is the number of files and links.
	Files int
}

// Entry is a file or a symbolic link.
type Entry struct {
	// Path relative to the directory, with slashes.
	Path string
	// SizeBytes of a file; 0 of a link.
	SizeBytes int64
	// Executable says whether the owner of a file may execute it.
	Executable bool
	// Target of a link; empty for a file.
	Target string
}

// Of is the sum of all files in a directory.
func Of(dir string) (Sum, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Sum{}, err
	}
	defer func() { _ = root.Close() }()
	entries, err := List(root, func(string, bool) bool { return false })
	if err != nil {
		return Sum{}, err
	}
	return SumOf(root, entries)
}

// List returns the files and links in root in the order of their paths, without those that skip chooses. A directory that is skipped is
// not read. Links that lead out of root are errors, and so are devices, pipes and sockets.
func List(root *os.Root, skip func(path string, directory bool) bool) ([]Entry, error) {
	var entries []Entry
	err := fs.WalkDir(root.FS(), ".", func(path string, found fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path == ".":
			return nil
		case !utf8.ValidString(path):
			return fmt.Errorf("the file %q has a name that is not UTF-8: rename it", path)
		case skip(path, found.IsDir()):
			if found.IsDir() {
				return fs.SkipDir
			}
			return nil
		case found.IsDir():
			return nil
		}
		entry, err := entryOf(root, path)
		entries = append(entries, entry)
		return err
	})
	slices.SortFunc(entries, func(a, b Entry) int { return cmp.Compare(a.Path, b.Path) }) // a walk has a/b in front of a.txt
	return entries, err
}

func entryOf(root *os.Root, path string) (Entry, error) {
	info, err := root.Lstat(path)
	if err != nil {
		return Entry{}, err
	}
	switch {
	case info.Mode().IsRegular():
		return Entry{Path: path, SizeBytes: info.Size(), Executable: info.Mode()&0o100 != 0}, nil
	case info.Mode().Type() == fs.ModeSymlink:
		target, err := root.Readlink(path)
		if err != nil {
			return Entry{}, err
		}
		if err = CheckLink(path, target); err != nil {
			return Entry{}, fmt.Errorf("the link %s %w", path, err)
		}
		return Entry{Path: path, Target: target}, nil
	default:
		return Entry{}, fmt.Errorf("the file %s is neither a regular file, a directory nor a link: remove it", path)
	}
}

// SumOf is the sum of some files of root, which are in the order of their paths.
func SumOf(root *os.Root, entries []Entry) (Sum, error) {
	sum, digest := Sum{Files: len(entries)}, sha256.New()
	for _, entry := range entries {
		kind, value := byte('l'), []byte(entry.Target)
		if entry.Target == "" {
			var size int64
			var err error
			if value, size, err = contentOf(root, entry.Path); err != nil {
				return Sum{}, err
			}
			sum.SizeBytes += size
			if kind = 'f'; entry.Executable {
				kind = 'x'
			}
		}
		record := binary.BigEndian.AppendUint64(nil, uint64(len(entry.Path)))
		record = append(append(record, entry.Path...), kind)
		record = binary.BigEndian.AppendUint64(record, uint64(len(value)))
		digest.Write(append(record, value...))
	}
	sum.Digest = "sha256:" + hex.EncodeToString(digest.Sum(nil))
	return sum, nil
}

// contentOf is the SHA-256 of a file's content, and its size.
func contentOf(root *os.Root, path string) ([]byte, int64, error) {
	file, err := root.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = file.Close() }()
	digest := sha256.New()
	size, err := io.Copy(digest, file)
	return digest.Sum(nil), size, err
}
