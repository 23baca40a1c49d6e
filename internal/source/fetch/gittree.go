package fetch

import (
	"bufio"
	"errors"
	"io"
	"path"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/storage/filesystem"

	"github.com/dcnlab/spot-training-operator/api/reasons"
)

// lfsPointer begins a file that Git LFS has in place of the content.
const lfsPointer = "version https://git-lfs.github.com/spec/v1"

// maxTarget is longer than the target of a link can be.
const maxTarget = 8 << 10

// tree writes the files of the commit.
func (a *attempt) tree(s server, objects *filesystem.Storage) error {
	spec := a.Source.Git
	commit, err := object.GetCommit(objects, plumbing.NewHash(spec.Commit))
	if errors.Is(err, plumbing.ErrObjectNotFound) {
		if _, other := objects.EncodedObject(plumbing.AnyObject, plumbing.NewHash(spec.Commit)); other == nil {
			return problem(reasons.SourceInvalid, "spec.source.git.commit: %s is no commit: write what git rev-parse %s^{commit} prints", spec.Commit, spec.Commit)
		}
		return a.noCommit()
	}
	if err != nil {
		return s.explain(err)
	}
	of, err := commit.Tree()
	if err != nil {
		return s.explain(err)
	}
	if below := path.Clean("/" + spec.Path); below != "/" {
		if of, err = of.Tree(below[1:]); errors.Is(err, object.ErrDirectoryNotFound) {
			return problem(reasons.SourceNotFound, "spec.source.git.path: the commit has no directory %s: correct the path", spec.Path)
		}
		if err != nil {
			return s.explain(err)
		}
	}
	walker := object.NewTreeWalker(of, true, nil)
	defer walker.Close()
	for {
		name, entry, err := walker.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = a.entry(objects, name, entry)
		}
		if known := ownProblem(s.source, err); known != nil {
			return known
		}
		if err != nil {
			return s.explain(err)
		}
	}
}

// entry writes one file or link.
func (a *attempt) entry(objects *filesystem.Storage, name string, entry object.TreeEntry) error {
	switch entry.Mode {
	case filemode.Dir:
		return nil
	case filemode.Submodule:
		return problem(reasons.SourceInvalid, "spec.source.git: %s is a submodule: put its files into the repository, or use an archive that has them", name)
	}
	blob, err := object.GetBlob(objects, entry.Hash)
	if err != nil {
		return err
	}
	reader, err := blob.Reader()
	if err != nil {
		return err
	}
	defer func() { _ = reader.Close() }()
	if entry.Mode == filemode.Symlink {
		target, err := io.ReadAll(io.LimitReader(reader, maxTarget))
		if err != nil {
			return err
		}
		return a.code.Link(name, string(target))
	}
	content := bufio.NewReader(reader)
	if first, _ := content.Peek(len(lfsPointer)); string(first) == lfsPointer {
		return problem(reasons.SourceInvalid, "spec.source.git: %s is in Git LFS, which is not supported: "+
			"put the file itself into the repository, or use an archive that has it", name)
	}
	return a.code.File(name, entry.Mode == filemode.Executable, content)
}
