package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// caBundle is where Debian and most programs look for trusted certificates.
const caBundle = "/etc/ssl/certs/ca-certificates.crt"

// The accounts that workloads run as: the operator's own images as nonroot, training as trainer.
const (
	passwd = "root:x:0:0:root:/root:/sbin/nologin\n" +
		"trainer:x:1000:1000:trainer:/home/trainer:/sbin/nologin\n" +
		"nobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin\n" +
		"nonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n"
	group = "root:x:0:\n" +
		"trainer:x:1000:\n" +
		"nobody:x:65534:\n" +
		"nonroot:x:65532:\n"
)

// tree is the content of a layer, by path without the leading slash.
type tree struct{ entries map[string]entry }

// entry is one file, folder or link: exactly one of source, content and target counts.
type entry struct {
	header  tar.Header
	source  string
	content []byte
}

// files gathers everything that goes on top of the root file system.
func (s Spec) files() (tree, error) {
	t := tree{entries: map[string]entry{}}
	if s.Accounts {
		t.content("/etc/passwd", []byte(passwd))
		t.content("/etc/group", []byte(group))
		t.folder("/tmp", 0o1777, 0)
		t.folder("/home/nonroot", 0o755, 65532)
		t.folder("/home/trainer", 0o755, 1000)
	}
	if s.CACertificates {
		bundle, err := os.ReadFile(caBundle)
		if err != nil {
			return tree{}, fmt.Errorf("trusted certificates of this machine (package ca-certificates): %w", err)
		}
		t.content(caBundle, bundle)
	}
	for _, file := range s.Files {
		if err := t.add(file); err != nil {
			return tree{}, err
		}
	}
	return t, nil
}

// add takes a file, link or folder with everything in it from the host.
func (t tree) add(file File) error {
	// Given by its own name, a link stands for what it points to; inside a folder it stays a link.
	source, err := filepath.EvalSymlinks(file.Source)
	if err != nil {
		return fmt.Errorf("file for the image: %w", err)
	}
	return filepath.WalkDir(source, func(from string, walked fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := walked.Info()
		if err != nil {
			return err
		}
		below, err := filepath.Rel(source, from)
		if err != nil {
			return err
		}
		header, err := treeHeader(from, below, info)
		if err != nil {
			return err
		}
		if header == nil {
			return fmt.Errorf("%s is neither file, folder nor link", from)
		}
		owner, mode := Owner{}, info.Mode().Perm()
		if file.Owner != nil {
			owner = *file.Owner
		}
		switch {
		case info.IsDir() && file.Owner == nil:
			mode = 0o755
		case info.Mode().IsRegular() && file.Mode != 0:
			mode = file.Mode
		}
		e := entry{header: tar.Header{
			Typeflag: header.Typeflag, Linkname: header.Linkname, Size: header.Size, Mode: int64(mode), Uid: owner.UID, Gid: owner.GID,
		}}
		if info.Mode().IsRegular() {
			e.source = from
		}
		t.put(path.Join(file.Path, filepath.ToSlash(below)), e)
		return nil
	})
}

func (t tree) content(to string, content []byte) {
	t.put(to, entry{header: tar.Header{Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content))}, content: content})
}

func (t tree) folder(to string, mode int64, owner int) {
	t.put(to, entry{header: tar.Header{Typeflag: tar.TypeDir, Mode: mode, Uid: owner, Gid: owner}})
}

// put adds an entry and the folders above it that are not there yet.
func (t tree) put(to string, e entry) {
	name := strings.TrimPrefix(path.Clean(to), "/")
	if name == "" || name == "." {
		return // the root folder itself is not an entry
	}
	if _, known := t.entries[name]; known && e.header.Typeflag == tar.TypeDir {
		return
	}
	t.entries[name] = e
	if above := path.Dir(name); above != "." {
		if _, known := t.entries[above]; !known {
			t.folder("/"+above, 0o755, 0)
		}
	}
}

// write writes all entries in the order of their names, so folders come before what is in them.
func (t tree) write(w *tar.Writer) error {
	for _, name := range slices.Sorted(maps.Keys(t.entries)) {
		e := t.entries[name]
		header := e.header
		header.Name, header.ModTime = name, epoch()
		if header.Typeflag == tar.TypeDir {
			header.Name += "/"
		}
		err := w.WriteHeader(&header)
		switch {
		case err != nil:
		case e.source != "":
			err = copyFile(w, e.source)
		case e.content != nil:
			_, err = bytes.NewReader(e.content).WriteTo(w)
		}
		if err != nil {
			return errors.Join(fmt.Errorf("write /%s", name), err)
		}
	}
	return nil
}
