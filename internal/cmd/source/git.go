package source

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/dcnlab/spot-training-operator/api/podtemplate"
)

// remote is where the jobs fetch the code from.
const remote = "origin"

func newGit() *cobra.Command {
	return &cobra.Command{
		Use:   "git [DIR]",
		Short: "Print spec.source for the current commit of a git repository",
		Long: "Print spec.source of a job for the commit that is checked out in DIR (default: the current directory), with the URL\n" +
			"of the remote " + remote + ".",
		Args: cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			dir := "."
			if len(arguments) > 0 {
				dir = arguments[0]
			}
			source, err := gitSource(dir, command.ErrOrStderr())
			if err != nil {
				return err
			}
			text, err := yaml.Marshal(map[string]podtemplate.Source{"source": {Git: source}})
			if err != nil {
				return err
			}
			_, err = command.OutOrStdout().Write(text)
			return err
		},
	}
}

// gitSource is the source of the checkout that dir lies in.
func gitSource(dir string, warnings io.Writer) (*podtemplate.GitSource, error) {
	dir, err := filepath.Abs(dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return nil, err
	}
	repository, err := git.PlainOpenWithOptions(dir, &git.PlainOpenOptions{DetectDotGit: true, EnableDotGitCommonDir: true})
	if errors.Is(err, git.ErrRepositoryNotExists) {
		return nil, fmt.Errorf("%s lies in no git repository: name another directory, or use source pack", dir)
	} else if err != nil {
		return nil, fmt.Errorf("open the git repository of %s: %w", dir, err)
	}
	source := &podtemplate.GitSource{}
	if source.URL, err = remoteURL(repository, warnings); err != nil {
		return nil, err
	}
	head, err := headCommit(repository)
	if err != nil {
		return nil, err
	}
	source.Commit = head.Hash.String()
	if source.Path, err = pathInRepository(repository, dir); err != nil {
		return nil, err
	}
	if err := checkChanges(repository, warnings); err != nil {
		return nil, err
	}
	if source.Path != "" {
		files, err := head.Tree()
		if err != nil {
			return nil, err
		}
		if _, err = files.Tree(source.Path); errors.Is(err, object.ErrDirectoryNotFound) {
			return nil, fmt.Errorf("the commit %s has no directory %s: commit it", source.Commit, source.Path)
		} else if err != nil {
			return nil, err
		}
	}
	pushed, err := isPushed(repository, head)
	if err == nil && !pushed {
		fmt.Fprintf(warnings, "no branch of the remote %s is known to have the commit %s: push it by git push\n", remote, source.Commit)
	}
	return source, err
}

func headCommit(repository *git.Repository) (*object.Commit, error) {
	head, err := repository.Head()
	if errors.Is(err, plumbing.ErrReferenceNotFound) {
		return nil, errors.New("the repository has no commit: make one by git commit, and push it by git push")
	} else if err != nil {
		return nil, err
	}
	return repository.CommitObject(head.Hash())
}

// scp is the form of URLs that ssh:// is left out of.
var scp = regexp.MustCompile(`^[A-Za-z0-9._-]+@[A-Za-z0-9.-]+:[^ ]+$`)

// remoteURL is that of the remote, without what must not be seen by others.
func remoteURL(repository *git.Repository, warnings io.Writer) (string, error) {
	found, err := repository.Remote(remote)
	if errors.Is(err, git.ErrRemoteNotFound) {
		return "", fmt.Errorf("the repository has no remote %s, from which jobs could fetch it: add one by git remote add %s URL", remote, remote)
	} else if err != nil {
		return "", err
	}
	address := found.Config().URLs[0]
	if !strings.Contains(address, "://") && scp.MatchString(address) {
		return address, nil
	}
	parsed, err := url.Parse(address)
	if err != nil || parsed.Host == "" || (parsed.Scheme != "https" && parsed.Scheme != "ssh") {
		return "", fmt.Errorf("the URL of the remote %s is none that jobs can fetch from: set one that begins with https:// or ssh://, "+
			"or has the form user@host:path, by git remote set-url %s URL", remote, remote)
	}
	_, hasPassword := parsed.User.Password()
	switch {
	case parsed.Scheme == "https" && parsed.User != nil:
		parsed.User = nil
	case hasPassword:
		parsed.User = url.User(parsed.User.Username())
	default:
		return address, nil
	}
	fmt.Fprintf(warnings, "left the credentials out of the URL: put them into a Secret, and name it in spec.source.git.secretRef\n")
	return parsed.String(), nil
}

// pathInRepository is where dir lies below the top of the repository; empty for the top.
func pathInRepository(repository *git.Repository, dir string) (string, error) {
	worktree, err := repository.Worktree()
	if err != nil {
		return "", err
	}
	top, err := filepath.EvalSymlinks(worktree.Filesystem.Root())
	if err != nil {
		return "", err
	}
	below, err := filepath.Rel(top, dir)
	if err != nil || below == "." {
		return "", err
	}
	return filepath.ToSlash(below), nil
}

// checkChanges refuses changes that are in no commit.
func checkChanges(repository *git.Repository, warnings io.Writer) error {
	worktree, err := repository.Worktree()
	if err != nil {
		return err
	}
	status, err := worktree.Status()
	if err != nil {
		return fmt.Errorf("compare the files with the commit: %w", err)
	}
	var changed, untracked []string
	for file, state := range status {
		switch {
		case state.Worktree == git.Untracked:
			untracked = append(untracked, file)
		case state.Worktree != git.Unmodified || state.Staging != git.Unmodified:
			changed = append(changed, file)
		}
	}
	if len(changed) > 0 {
		return fmt.Errorf("the changes of %s are in no commit: make one by git commit -a, and push it by git push", some(changed))
	}
	if len(untracked) > 0 {
		fmt.Fprintf(warnings, "git does not track %s, which jobs will not have: add what they need by git add\n", some(untracked))
	}
	return nil
}

// some names a few files.
func some(files []string) string {
	const most = 5
	slices.Sort(files)
	if len(files) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(files[:most], ", "), len(files)-most)
	}
	return strings.Join(files, ", ")
}

// clockSkew is how much older than its parent a commit may say to be.
const clockSkew = 24 * time.Hour

// isPushed says whether a branch of the remote has the commit, as far as is known here.
func isPushed(repository *git.Repository, head *object.Commit) (bool, error) {
	references, err := repository.References()
	if err != nil {
		return false, err
	}
	var next []plumbing.Hash
	err = references.ForEach(func(reference *plumbing.Reference) error {
		if reference.Type() == plumbing.HashReference && strings.HasPrefix(reference.Name().String(), "refs/remotes/"+remote+"/") {
			next = append(next, reference.Hash())
		}
		return nil
	})
	seen := map[plumbing.Hash]bool{}
	for len(next) > 0 && err == nil {
		hash := next[len(next)-1]
		next = next[:len(next)-1]
		if hash == head.Hash {
			return true, nil
		}
		if seen[hash] {
			continue
		}
		seen[hash] = true
		commit, err := repository.CommitObject(hash)
		if errors.Is(err, plumbing.ErrObjectNotFound) { // a shallow clone ends here
			continue
		} else if err != nil {
			return false, err
		}
		if commit.Committer.When.After(head.Committer.When.Add(-clockSkew)) {
			next = append(next, commit.ParentHashes...)
		}
	}
	return false, err
}
