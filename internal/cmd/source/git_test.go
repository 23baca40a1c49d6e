package source

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// checkout is a repository with one commit, which the remote has.
type checkout struct {
	dir        string
	repository *git.Repository
	worktree   *git.Worktree
	commits    int
}

func newCheckout(t *testing.T, address string) *checkout {
	t.Helper()
	t.Setenv("HOME", t.TempDir()) // where git has settings
	c := &checkout{dir: directory(t, "repository", map[string]string{"train.py": "x", "sub/dir/a": "y", ".gitignore": "*.log\n"})}
	var err error
	c.repository, err = git.PlainInit(c.dir, false)
	require.NoError(t, err)
	c.worktree, err = c.repository.Worktree()
	require.NoError(t, err)
	if address != "" {
		_, err = c.repository.CreateRemote(&config.RemoteConfig{Name: "origin", URLs: []string{address}})
		require.NoError(t, err)
	}
	c.pushed(t, "main", c.commit(t))
	return c
}

func (c *checkout) commit(t *testing.T) plumbing.Hash {
	t.Helper()
	require.NoError(t, c.worktree.AddGlob("."))
	c.commits++
	when := time.Date(2026, 3, 1, 12, c.commits, 0, 0, time.UTC)
	hash, err := c.worktree.Commit("change", &git.CommitOptions{AllowEmptyCommits: true, Author: &object.Signature{Name: "a", Email: "a@b", When: when}})
	require.NoError(t, err)
	return hash
}

func (c *checkout) pushed(t *testing.T, branch string, hash plumbing.Hash) {
	t.Helper()
	name := plumbing.NewRemoteReferenceName("origin", branch)
	require.NoError(t, c.repository.Storer.SetReference(plumbing.NewHashReference(name, hash)))
}

func (c *checkout) head(t *testing.T) string {
	t.Helper()
	head, err := c.repository.Head()
	require.NoError(t, err)
	return head.Hash().String()
}

func TestGit(t *testing.T) {
	c := newCheckout(t, "https://example.com/team/code.git")
	for dir, path := range map[string]string{"": "", "sub": "    path: sub\n", "sub/dir": "    path: sub/dir\n"} {
		output, warnings, err := execute("git", filepath.Join(c.dir, dir))
		require.NoError(t, err)
		assert.Empty(t, warnings)
		assert.Equal(t, "source:\n  git:\n    commit: "+c.head(t)+"\n"+path+"    url: https://example.com/team/code.git\n", output)
	}
	t.Chdir(filepath.Join(c.dir, "sub"))
	output, _, err := execute("git")
	require.NoError(t, err)
	assert.Contains(t, output, "path: sub\n")
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(filepath.Join(c.dir, "sub", "dir"), link))
	output, _, err = execute("git", link)
	require.NoError(t, err)
	assert.Contains(t, output, "path: sub/dir\n")
}

func TestURLsOfGit(t *testing.T) {
	const none = "the URL of the remote origin is none that jobs can fetch from: set one that begins with https:// or ssh://, or has the form user@host:path"
	for address, test := range map[string]struct {
		want, err     string
		isCredentials bool
	}{
		"https://example.com:8443/a b.git":        {want: "https://example.com:8443/a b.git"},
		"git@example.com:team/code.git":           {want: "git@example.com:team/code.git"},
		"ssh://git@example.com:2222/team/code":    {want: "ssh://git@example.com:2222/team/code"},
		"https://user:pass@example.com/code.git":  {want: "https://example.com/code.git", isCredentials: true},
		"https://token@example.com/code.git":      {want: "https://example.com/code.git", isCredentials: true},
		"ssh://git:secret@example.com/code.git":   {want: "ssh://git@example.com/code.git", isCredentials: true},
		"http://user:secret@example.com/code.git": {err: none},
		"git://example.com/code.git":              {err: none},
		"file:///srv/code.git":                    {err: none},
		"/srv/code.git":                           {err: none},
		"../code.git":                             {err: none},
		"example.com:code.git":                    {err: none},
		"https:///code.git":                       {err: none},
	} {
		t.Run(address, func(t *testing.T) {
			c := newCheckout(t, address)
			source, said, err := gitSourceOf(c)
			assert.NotContains(t, said, "secret@")
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				assert.NotContains(t, err.Error(), "secret")
				return
			}
			require.NoError(t, err)
			assert.Equal(t, test.want, source)
			assert.Equal(t, test.isCredentials, strings.Contains(said, "left the credentials out of the URL"))
		})
	}
}

func gitSourceOf(c *checkout) (address, warnings string, err error) {
	var said strings.Builder
	source, err := gitSource(c.dir, &said)
	if err != nil {
		return "", said.String(), err
	}
	return source.URL, said.String(), nil
}

func TestWhatGitRefuses(t *testing.T) {
	const address = "https://example.com/code.git"
	for name, test := range map[string]struct {
		change func(t *testing.T, c *checkout)
		dir    string
		want   string
	}{
		"a changed file": {
			func(t *testing.T, c *checkout) { put(t, c.dir, map[string]string{"train.py": "other"}) }, "",
			"the changes of train.py are in no commit: make one by git commit -a, and push it by git push",
		},
		"a deleted file": {func(t *testing.T, c *checkout) { require.NoError(t, os.Remove(c.dir+"/train.py")) }, "", "the changes of train.py are"},
		"a staged file": {
			func(t *testing.T, c *checkout) {
				put(t, c.dir, map[string]string{"new": ""})
				require.NoError(t, c.worktree.AddGlob("new"))
			}, "", "the changes of new are",
		},
		"a mode": {func(t *testing.T, c *checkout) { require.NoError(t, os.Chmod(c.dir+"/train.py", 0o755)) }, "", "the changes of train.py are"},
		"many changed files": {
			func(t *testing.T, c *checkout) {
				files := map[string]string{"1": "", "2": "", "3": "", "4": "", "5": "", "6": "", "7": ""}
				put(t, c.dir, files)
				require.NoError(t, c.worktree.AddGlob("."))
			}, "", "1, 2, 3, 4, 5 and 2 more are in no commit",
		},
		"no remote": {
			func(t *testing.T, c *checkout) { require.NoError(t, c.repository.DeleteRemote("origin")) }, "",
			"the repository has no remote origin, from which jobs could fetch it: add one by git remote add origin URL",
		},
		"no repository": {func(t *testing.T, c *checkout) { require.NoError(t, os.RemoveAll(c.dir+"/.git")) }, "", "lies in no git repository"},
		"no commit": {
			func(t *testing.T, c *checkout) {
				require.NoError(t, c.repository.Storer.RemoveReference(plumbing.NewBranchReferenceName("master")))
			}, "", "the repository has no commit: make one by git commit, and push it by git push",
		},
		"a directory that is not committed": {
			func(t *testing.T, c *checkout) { put(t, c.dir, map[string]string{"new/a": ""}) }, "new", "has no directory new: commit it",
		},
		"no directory": {func(*testing.T, *checkout) {}, "none", "no such file or directory"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCheckout(t, address)
			test.change(t, c)
			output, _, err := execute("git", filepath.Join(c.dir, test.dir))
			require.ErrorContains(t, err, test.want)
			assert.Empty(t, output)
		})
	}
}

func TestUntrackedFilesAreOnlyAWarning(t *testing.T) {
	c := newCheckout(t, "git@example.com:code")
	put(t, c.dir, map[string]string{"x.log": "", "sub/new": ""})
	output, warnings, err := execute("git", c.dir)
	require.NoError(t, err)
	assert.Contains(t, output, c.head(t))
	assert.Equal(t, "git does not track sub/new, which jobs will not have: add what they need by git add\n", warnings)
}

func TestACommitThatIsNotPushedIsAWarning(t *testing.T) {
	c := newCheckout(t, "git@example.com:code")
	first := c.head(t)
	second, third := c.commit(t), c.commit(t)

	output, warnings, err := execute("git", c.dir)
	require.NoError(t, err)
	assert.Contains(t, output, third.String())
	assert.Equal(t, "no branch of the remote origin is known to have the commit "+third.String()+": push it by git push\n", warnings)

	c.pushed(t, "other", third)
	for _, commit := range []string{first, second.String(), third.String()} {
		require.NoError(t, c.worktree.Checkout(&git.CheckoutOptions{Hash: plumbing.NewHash(commit)}))
		output, warnings, err = execute("git", c.dir)
		require.NoError(t, err)
		assert.Contains(t, output, commit)
		assert.Empty(t, warnings, "a branch of the remote has it, or a later commit")
	}

	absent := plumbing.NewHash("1234567890123456789012345678901234567890")
	c.pushed(t, "other", absent)
	_, warnings, err = execute("git", c.dir)
	require.NoError(t, err)
	assert.Contains(t, warnings, "push it", "the history of a shallow clone ends somewhere")
}
