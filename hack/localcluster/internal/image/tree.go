package image

import (
	"archive/tar"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// writeTree writes everything below root with owners, permissions and times as they are: programs
// such as Python compare the time of a source with what a compiled file says. With SOURCE_DATE_EPOCH
// no time is later than that. Sockets and device files are left out, as the runtime makes those it needs.
func writeTree(w *tar.Writer, root string) error {
	links := map[inode]string{}
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		header, err := treeHeader(path, name, info)
		if header == nil || err != nil {
			return err
		}
		if first, again := seenBefore(links, info, header.Name); again {
			header.Typeflag, header.Linkname, header.Size = tar.TypeLink, first, 0
		}
		if err := w.WriteHeader(header); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if header.Typeflag != tar.TypeReg {
			return nil
		}
		return copyFile(w, path)
	})
}

// treeHeader describes one entry; nil for what is left out.
func treeHeader(path, name string, info fs.FileInfo) (*tar.Header, error) {
	if info.Mode()&(fs.ModeSocket|fs.ModeDevice|fs.ModeCharDevice|fs.ModeNamedPipe) != 0 {
		return nil, nil
	}
	target := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		var err error
		if target, err = os.Readlink(path); err != nil {
			return nil, err
		}
	}
	header, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return nil, err
	}
	header.Name = name
	if info.IsDir() {
		header.Name += "/"
	}
	// The host's names for the owners mean nothing inside, and access times change by reading.
	header.Uname, header.Gname = "", ""
	header.AccessTime, header.ChangeTime = time.Time{}, time.Time{}
	if os.Getenv("SOURCE_DATE_EPOCH") != "" && header.ModTime.After(epoch()) {
		header.ModTime = epoch()
	}
	return header, nil
}

// inode names a file regardless of its path.
type inode struct{ device, number uint64 }

// seenBefore reports whether a file with several names was written under another one, and which.
func seenBefore(links map[inode]string, info fs.FileInfo, name string) (first string, again bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || stat.Nlink < 2 || !info.Mode().IsRegular() {
		return "", false
	}
	id := inode{uint64(stat.Dev), stat.Ino}
	if first, again = links[id]; again {
		return first, true
	}
	links[id] = name
	return "", false
}

func copyFile(w io.Writer, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(w, file)
	return err
}
