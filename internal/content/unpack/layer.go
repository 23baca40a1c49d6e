package unpack

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"path"
	"strings"
)

// Whiteouts of the OCI image specification: files whose names say what of the layers below is deleted.
const (
	whiteoutPrefix = ".wh."
	whiteoutOpaque = ".wh..wh..opq"
	whiteoutOther  = ".wh..wh."
)

// Layer unpacks a layer of an OCI artifact, a tar stream as for Tar, over those before it. Its whiteouts delete what those have, and its
// files and directories replace theirs.
func (t *Tree) Layer(r io.Reader) error {
	t.layer = map[string]bool{}
	defer func() { t.layer = nil }()
	return t.tar(r, func(header *tar.Header, content io.Reader) error {
		_, name := path.Split(header.Name)
		if !strings.HasPrefix(name, whiteoutPrefix) {
			return t.entry(header, content)
		}
		if err := t.count(&t.skipped); err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, content); err != nil {
			return err
		}
		return t.whiteOut(header.Name, name)
	})
}

func (t *Tree) whiteOut(entry, name string) error {
	hidden := strings.TrimPrefix(name, whiteoutPrefix)
	if hidden == "" || hidden == "." || hidden == ".." {
		return invalid("the entry %s is a whiteout of nothing: pack the layer without it", show(entry))
	}
	place, err := t.place(entry)
	if err != nil {
		return err
	}
	if err := t.make(entry, path.Dir(place)); err != nil {
		return err
	}
	switch {
	case name == whiteoutOpaque:
		err = t.removeBelow(path.Dir(place))
	case !strings.HasPrefix(name, whiteoutOther): // those are notes of the builder
		err = t.removeOld(path.Join(path.Dir(place), hidden))
	}
	clear(t.directories)
	t.directories["."] = true
	return err
}

// removeOld removes what the layers below have at a path.
func (t *Tree) removeOld(place string) error {
	if !t.layer[place] {
		return t.root.RemoveAll(place)
	}
	info, err := t.root.Lstat(place)
	if err != nil || !info.IsDir() {
		return err
	}
	return t.removeBelow(place)
}

// removeBelow removes what the layers below have in a directory.
func (t *Tree) removeBelow(directory string) error {
	found, err := fs.ReadDir(t.root.FS(), directory)
	for _, entry := range found {
		err = errors.Join(err, t.removeOld(path.Join(directory, entry.Name())))
	}
	return err
}
