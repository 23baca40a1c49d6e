// Package image builds container images without a container engine.
//
// An image is made of at most two layers: a root file system as it is, and on top of it the given
// files. Equal inputs give an equal image: times, owners and order do not depend on when and where it
// is built.
package image

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// Spec says what is in an image.
type Spec struct {
	// RootFS is a folder or a tar file (plain or gzip) with a root file system; empty for none.
	RootFS string
	// Files are put on top of it.
	Files []File
	// CACertificates adds the host's bundle of trusted certificates.
	CACertificates bool
	// Accounts adds /etc/passwd and /etc/group with root, nonroot (65532) and trainer (1000), their
	// home folders and a /tmp that all can write.
	Accounts bool
	// Entrypoint, Cmd, User, Env (NAME=value), Labels, WorkDir are the image's configuration.
	Entrypoint []string
	Cmd        []string
	User       string
	Env        []string
	Labels     map[string]string
	WorkDir    string
	// Annotations are put on the image's manifest.
	Annotations map[string]string
}

// File is a file, folder or link of the host to put into the image.
type File struct {
	// Source is the path on the host; a folder is taken with everything in it.
	Source string
	// Path is the absolute path in the image.
	Path string
	// Mode are the permissions of files; zero keeps those of the source.
	Mode fs.FileMode
}

// ParseFile reads "source:path" or "source:path:mode", the mode in octal.
func ParseFile(text string) (File, error) {
	parts := strings.Split(text, ":")
	if len(parts) < 2 || len(parts) > 3 || parts[0] == "" || !strings.HasPrefix(parts[1], "/") {
		return File{}, fmt.Errorf("file %q: want source:/path or source:/path:mode", text)
	}
	file := File{Source: parts[0], Path: parts[1]}
	if len(parts) == 3 {
		mode, err := strconv.ParseUint(parts[2], 8, 32)
		if err != nil || mode > 0o7777 {
			return File{}, fmt.Errorf("file %q: mode %q is not an octal number up to 7777", text, parts[2])
		}
		file.Mode = fs.FileMode(mode)
	}
	return file, nil
}
