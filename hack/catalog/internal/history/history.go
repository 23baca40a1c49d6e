// Package history reads files of past commits out of a git repository.
package history

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Repository is a git repository at a folder.
type Repository struct {
	// Root is its top folder.
	Root string
}

// Export writes the files that a commit has below the given paths (all files without one) into folder, which is made.
// A commit that the clone does not have is an error that says how to get it.
func (r Repository) Export(ctx context.Context, commit, folder string, paths ...string) error {
	if err := r.has(ctx, commit); err != nil {
		return err
	}
	command := r.git(ctx, append([]string{"archive", "--format=tar", commit, "--"}, paths...)...)
	var problem bytes.Buffer
	command.Stderr = &problem
	archive, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return fmt.Errorf("run git: %w", err)
	}
	unpacked := unpack(archive, folder)
	_, drained := io.Copy(io.Discard, archive)
	if err := command.Wait(); err != nil {
		return fmt.Errorf("read %s of commit %s: %w: %s", strings.Join(paths, ", "), commit, err, strings.TrimSpace(problem.String()))
	}
	return errors.Join(unpacked, drained)
}

// has explains the absence of a commit.
func (r Repository) has(ctx context.Context, commit string) error {
	if err := r.git(ctx, "cat-file", "-e", commit+"^{commit}").Run(); err == nil {
		return nil
	}
	shallow, err := r.git(ctx, "rev-parse", "--is-shallow-repository").Output()
	if err != nil {
		return fmt.Errorf("%s is no git repository, so commit %s cannot be read from it: clone the repository", r.Root, commit)
	}
	if strings.TrimSpace(string(shallow)) == "true" {
		return fmt.Errorf("commit %s is not in this clone, which is shallow: run git fetch --unshallow", commit)
	}
	return fmt.Errorf("commit %s is not in this clone: run git fetch, and check the hash if it stays so", commit)
}

// git takes a repository for its own although another user has checked it out, as happens in containers.
func (r Repository) git(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "git", append([]string{"-C", r.Root, "-c", "safe.directory=*"}, args...)...)
}

// unpack writes the folders, files and links of an archive.
func unpack(archive io.Reader, folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	reader := tar.NewReader(archive)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("unpack the archive of git: %w", err)
		}
		if err := unpackEntry(root, header, reader); err != nil {
			return fmt.Errorf("unpack %s: %w", header.Name, err)
		}
	}
}

func unpackEntry(root *os.Root, header *tar.Header, content io.Reader) error {
	name := filepath.Clean(filepath.FromSlash(header.Name))
	switch header.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(name, 0o755)
	case tar.TypeReg:
		if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		file, err := root.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, header.FileInfo().Mode().Perm())
		if err != nil {
			return err
		}
		_, err = io.Copy(file, content)
		return errors.Join(err, file.Close())
	case tar.TypeSymlink:
		return root.Symlink(header.Linkname, name)
	default:
		return nil // the note with the commit's hash that git puts in front
	}
}
