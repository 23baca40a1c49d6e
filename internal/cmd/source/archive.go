package source

import (
	"archive/tar"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/dcnlab/spot-training-operator/internal/content/tree"
	"github.com/dcnlab/spot-training-operator/internal/content/unpack"
)

// checkLimits refuses files that could not be unpacked.
func checkLimits(entries []tree.Entry) error {
	limits := unpack.CodeLimits
	var bytes int64
	directories := map[string]bool{}
	for _, entry := range entries {
		bytes += entry.SizeBytes
		for i, c := range entry.Path {
			if c == '/' {
				directories[entry.Path[:i]] = true
			}
		}
		if strings.Count(entry.Path, "/") >= limits.Depth {
			return fmt.Errorf("the path %s has more than %d parts: move the file up", entry.Path, limits.Depth)
		}
	}
	if len(entries)+len(directories) > limits.Files {
		return fmt.Errorf("there are more than %d files and directories: add what the program does not need to %s", limits.Files, ignoreFile)
	}
	if bytes > limits.Bytes {
		return fmt.Errorf("the files have %d bytes, and at most %d are unpacked: add what the program does not need to %s", bytes, limits.Bytes, ignoreFile)
	}
	return nil
}

// writeArchive writes a tar.gz with nothing in it that differs between two machines with the same files.
func writeArchive(w io.Writer, root *os.Root, entries []tree.Entry) error {
	compressed, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(compressed)
	for _, entry := range entries {
		if err := writeEntry(archive, root, entry); err != nil {
			return fmt.Errorf("pack %s: %w", entry.Path, err)
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return compressed.Close()
}

func writeEntry(archive *tar.Writer, root *os.Root, entry tree.Entry) error {
	if entry.Target != "" {
		return archive.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: entry.Path, Linkname: entry.Target, Mode: 0o777})
	}
	header := &tar.Header{Typeflag: tar.TypeReg, Name: entry.Path, Size: entry.SizeBytes, Mode: 0o644}
	if entry.Executable {
		header.Mode = 0o755
	}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	file, err := root.Open(entry.Path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	_, err = io.Copy(archive, file)
	return err
}
