// Package gitserver serves repositories of git for tests, by git itself.
package gitserver

import (
	"net"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/test/harness/httpsserver"
)

// Repository is one that git serves by HTTPS, to one user.
type Repository struct {
	// Folder has its files.
	Folder string
	// URL of the repository, and CA, the authority of the server's certificate in PEM.
	URL, CA string
}

// New makes an empty repository, and serves it until the test ends; without a listener on the loopback interface.
func New(t testing.TB, listener net.Listener, user, password string) *Repository {
	t.Helper()
	top := t.TempDir()
	r := &Repository{Folder: filepath.Join(top, "code.git")}
	require.NoError(t, os.Mkdir(r.Folder, 0o755))
	r.Git(t, "init", "--quiet", "--initial-branch=main")
	// It gives a single commit where a client asks for it, as GitHub and GitLab do.
	r.Git(t, "config", "uploadpack.allowAnySHA1InWant", "true")
	backend := &cgi.Handler{
		Path: filepath.Join(r.Git(t, "--exec-path"), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + top, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null"},
	}
	server := httpsserver.Start(t, listener, httpsserver.Guarded(user, password, backend))
	r.URL, r.CA = server.URL+"/code.git/.git", server.CA
	return r
}

// Git runs git in the repository, and returns what it prints.
func (r *Repository) Git(t testing.TB, arguments ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "git", arguments...)
	command.Dir = r.Folder
	command.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com", "GIT_AUTHOR_DATE=2026-01-01T00:00:00Z", "GIT_COMMITTER_DATE=2026-01-01T00:00:00Z")
	output, err := command.CombinedOutput()
	require.NoError(t, err, "git %v: %s", arguments, output)
	return strings.TrimSpace(string(output))
}

// Commit makes a commit of what is in the folder.
func (r *Repository) Commit(t testing.TB) string {
	t.Helper()
	r.Git(t, "add", "--all")
	r.Git(t, "commit", "--quiet", "--allow-empty", "--message=test")
	return r.Git(t, "rev-parse", "HEAD")
}
