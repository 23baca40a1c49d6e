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
	// Owner is who files and folders belong to; nil for root. With an owner, folders keep the permissions that they
	// have on the host, else they get 0755.
	Owner *Owner
}

// Owner is a user and a group by number.
type Owner struct{ UID, GID int }

// ParseFile reads "source:path", "source:path:mode" or "source:path:mode:user:group". The mode is in octal and may be
// empty, user and group are numbers.
func ParseFile(text string) (File, error) {
	parts := strings.Split(text, ":")
	if (len(parts) != 2 && len(parts) != 3 && len(parts) != 5) || parts[0] == "" || !strings.HasPrefix(parts[1], "/") {
		return File{}, fmt.Errorf("file %q: want source:/path, source:/path:mode or source:/path:mode:user:group", text)
	}
	file := File{Source: parts[0], Path: parts[1]}
	if len(parts) == 3 || (len(parts) == 5 && parts[2] != "") {
		mode, err := strconv.ParseUint(parts[2], 8, 32)
		if err != nil || mode > 0o7777 {
			return File{}, fmt.Errorf("file %q: mode %q is not an octal number up to 7777", text, parts[2])
		}
		file.Mode = fs.FileMode(mode)
	}
	if len(parts) == 5 {
		user, userErr := strconv.ParseUint(parts[3], 10, 31)
		group, groupErr := strconv.ParseUint(parts[4], 10, 31)
		if userErr != nil || groupErr != nil {
			return File{}, fmt.Errorf("file %q: user %q and group %q have to be numbers", text, parts[3], parts[4])
		}
		file.Owner = &Owner{UID: int(user), GID: int(group)}
	}
	return file, nil
}
