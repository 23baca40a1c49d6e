package fetch

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/dcnlab/spot-training-operator/api/podtemplate"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/test/harness/gitserver"
)

const gitUser = "bob"

// repository is one of one user.
type repository struct{ *gitserver.Repository }

func newRepository(t *testing.T) *repository {
	t.Helper()
	return &repository{gitserver.New(t, nil, gitUser, planted)}
}

// commit makes a commit of files in place of those before.
func (r *repository) commit(t *testing.T, files map[string]string) string {
	t.Helper()
	r.Git(t, "rm", "-r", "--quiet", "--ignore-unmatch", ".")
	write(t, r.Folder, files)
	return r.Commit(t)
}

func (r *repository) source(t *testing.T, commit string) podtemplate.Source {
	t.Helper()
	return podtemplate.Source{Git: &podtemplate.GitSource{URL: r.URL, Commit: commit, SecretRef: secretRef}}
}

func (r *repository) secret(t *testing.T) map[string]string {
	t.Helper()
	return map[string]string{"username": gitUser, "password": planted, "ca.crt": r.CA}
}

func TestACommitThatIsNoTipIsFetchedFromEachServer(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	commit := r.commit(t, program)
	r.commit(t, map[string]string{"other.py": "pass\n"})
	for _, single := range []string{"true", "false"} {
		r.Git(t, "config", "uploadpack.allowAnySHA1InWant", single)
		f := run(t, r.source(t, commit), r.secret(t)).has(t, program)
		assert.Equal(t, commit, f.status.Revision)
		run(t, r.source(t, strings.Repeat("12", 20)), r.secret(t)).fails(t, reasons.SourceNotFound,
			"spec.source.git.commit: the repository has no commit "+strings.Repeat("12", 20)+": push it, or correct the commit")
	}
}

func TestADirectoryOfARepositoryIsTaken(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	from := r.source(t, r.commit(t, program))
	from.Git.Path = "pkg/"
	run(t, from, r.secret(t)).has(t, map[string]string{"model.py": program["pkg/model.py"]})
	from.Git.Path = "src"
	run(t, from, r.secret(t)).fails(t, reasons.SourceNotFound, "spec.source.git.path: the commit has no directory src")
}

func TestAPrivateRepositoryNeedsItsCredentials(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	from := r.source(t, r.commit(t, program))
	run(t, from, map[string]string{"username": gitUser, "password": planted + "x", "ca.crt": r.CA}).fails(t, reasons.SourceAccessDenied,
		"refuses access: correct the Secret fetch of spec.source.git.secretRef")
	run(t, from, map[string]string{"token": planted, "ca.crt": r.CA}).fails(t, reasons.SourceAccessDenied, "refuses access") // of user x-token-auth
	run(t, from, map[string]string{"username": gitUser, "token": planted, "ca.crt": r.CA}).has(t, program)
	run(t, from, map[string]string{"username": gitUser, "password": planted}).fails(t, reasons.SourceUnreachable, "has a certificate that is not trusted")
	run(t, from, map[string]string{"ca.crt": planted}).fails(t, reasons.SourceAccessDenied, "ca.crt of Secret fetch holds no certificate")
	from.Git.SecretRef = nil
	run(t, from, map[string]string{"ca.crt": r.CA}).fails(t, reasons.SourceAccessDenied,
		"needs credentials, or has no such repository: name a Secret in spec.source.git.secretRef")
	from.Git.URL = strings.Replace(r.URL, "code.git", "none.git", 1)
	from.Git.SecretRef = secretRef
	run(t, from, r.secret(t)).fails(t, reasons.SourceNotFound, "has no such repository: correct the url")
}

func TestATokenIsThePasswordOfAFixedUser(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	commit := r.commit(t, program)
	backend := http.NotFoundHandler()
	var user, password string
	url, ca := serve(t, func(w http.ResponseWriter, request *http.Request) {
		user, password, _ = request.BasicAuth()
		backend.ServeHTTP(w, request)
	})
	from := podtemplate.Source{Git: &podtemplate.GitSource{URL: url + "/code.git", Commit: commit, SecretRef: secretRef}}
	run(t, from, map[string]string{"token": planted, "ca.crt": ca}).fails(t, reasons.SourceNotFound, "has no such repository")
	assert.Equal(t, []string{"x-token-auth", planted}, []string{user, password})
}

func TestWhatGitFetchesOtherwiseIsRefused(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	run(t, r.source(t, r.commit(t, map[string]string{
		"data/weights.bin": lfsPointer + "\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n",
	})), r.secret(t)).fails(t, reasons.SourceInvalid, "spec.source.git: data/weights.bin is in Git LFS, which is not supported")

	commit := r.commit(t, program)
	r.Git(t, "update-index", "--add", "--cacheinfo", "160000,"+commit+",vendor/lib")
	r.Git(t, "commit", "--quiet", "--message=submodule")
	run(t, r.source(t, r.Git(t, "rev-parse", "HEAD")), r.secret(t)).fails(t, reasons.SourceInvalid, "spec.source.git: vendor/lib is a submodule: ")

	run(t, r.source(t, r.commit(t, map[string]string{"etc": "->/etc"})), r.secret(t)).fails(t, reasons.SourceInvalid, "the link etc leads out of the directory")

	r.Git(t, "tag", "--annotate", "--message=test", "v1")
	run(t, r.source(t, r.Git(t, "rev-parse", "v1")), r.secret(t)).fails(t, reasons.SourceInvalid, "is no commit: write what git rev-parse")

	run(t, r.source(t, strings.Repeat("ab", 32)), r.secret(t)).fails(t, reasons.SourceInvalid, "spec.source.git.commit: is of a repository with SHA-256")
}

func TestOnlyEncryptedURLsOfRepositoriesAreAsked(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	for _, url := range []string{"http://example.com/a.git", "file://" + r.Folder, r.Folder, "git://example.com/a.git"} {
		from := r.source(t, r.commit(t, program))
		from.Git.URL = url
		run(t, from, r.secret(t)).fails(t, reasons.SourceInvalid, "spec.source.git.url: begins with https:// or ssh://, or has the form user@host:path")
	}
	from := r.source(t, r.commit(t, program))
	from.Git.URL = "https://" + planted + "@example.com/a.git"
	run(t, from, r.secret(t)).fails(t, reasons.SourceInvalid, "must not hold a user or password")
}

func TestARepositoryDoesNotRedirectElsewhere(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	from := r.source(t, r.commit(t, program))
	var got []string
	url, ca := serve(t, func(w http.ResponseWriter, request *http.Request) {
		got = append(got, request.URL.Path)
		http.Redirect(w, request, r.URL+strings.TrimPrefix(request.URL.RequestURI(), "/old.git"), http.StatusFound)
	})
	from.Git.URL = url + "/old.git"
	secret := r.secret(t)
	secret["ca.crt"] += ca
	run(t, from, secret).fails(t, reasons.SourceInvalid, "redirects to another host, "+strings.TrimPrefix(strings.Split(r.URL, "/code")[0], "https://"))
	assert.Len(t, got, 1, "another try is of no use")
}
