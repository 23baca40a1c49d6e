package fetch

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"
	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
	"github.com/go-git/go-git/v5/storage/filesystem"

	"github.com/dcnlab/spot-training-operator/api/reasons"
)

const (
	// tokenUser goes with a token. Bitbucket demands this name; GitHub, GitLab and Gitea take any name that is not empty, and look
	// at the token alone.
	tokenUser = "x-token-auth" //nolint:gosec // no secret
	// objectCache bounds the memory for objects, and largeObject the size of one that is kept in it as a whole.
	objectCache = 16 * cache.MiByte
	largeObject = 1 << 20
	// maxPack bounds what a server sends.
	maxPack = 2 << 30
	// sha1Digits are those of a commit in a repository with SHA-1.
	sha1Digits = 40
)

// fromGit takes the tree of a commit out of a repository. As little as possible of it is fetched.
func (a *attempt) fromGit(ctx context.Context) error {
	spec := a.Source.Git
	if len(spec.Commit) != sha1Digits {
		return problem(reasons.SourceInvalid, "spec.source.git.commit: is of a repository with SHA-256, which is not supported: use one with SHA-1, or another source")
	}
	endpoint, err := transport.NewEndpoint(spec.URL)
	if err != nil || (endpoint.Protocol != "https" && endpoint.Protocol != "ssh") {
		return problem(reasons.SourceInvalid, "spec.source.git.url: begins with https:// or ssh://, or has the form user@host:path")
	}
	s := server{"spec.source.git", "url", endpoint.Host, "repository", a.Source.Secret()}
	objects := filesystem.NewStorageWithOptions(osfs.New(path.Join(a.scratch, "git"), osfs.WithBoundOS()), cache.NewObjectLRU(objectCache),
		filesystem.Options{ExclusiveAccess: true, LargeObjectThreshold: largeObject})
	defer func() { _ = objects.Close() }()
	if err := objects.Init(); err != nil {
		return err
	}
	// The library waits for some answers of an SSH server without an end.
	ended := make(chan error, 1)
	go func() { ended <- a.fetchCommit(ctx, s, endpoint, objects) }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		return s.explain(ctx.Err())
	}
	if err != nil {
		return s.explain(err)
	}
	return a.tree(s, objects)
}

// fetchCommit has the server send the commit, with all others where it does not give single ones.
func (a *attempt) fetchCommit(ctx context.Context, s server, endpoint *transport.Endpoint, objects *filesystem.Storage) error {
	session, err := a.session(s, endpoint)
	if err != nil {
		return err
	}
	defer func() { _ = session.Close() }()
	offered, err := session.AdvertisedReferencesContext(ctx)
	if errors.Is(err, transport.ErrEmptyRemoteRepository) {
		return a.noCommit()
	}
	if err != nil {
		return s.explainGit(err)
	}
	request, err := requestOf(offered, plumbing.NewHash(a.Source.Git.Commit))
	if err != nil {
		return err
	}
	if len(request.Wants) == 0 {
		return a.noCommit()
	}
	answer, err := session.UploadPack(ctx, request)
	if err != nil {
		// The library passes on the text alone of what the server says.
		if strings.Contains(err.Error(), "not our ref") {
			return a.noCommit()
		}
		return s.explainGit(err)
	}
	defer func() { _ = answer.Close() }()
	pack := &boundedReader{from: demultiplexed(request.Capabilities, answer), left: maxPack}
	return packfile.WritePackfileToObjectStorage(objects, pack)
}

// requestOf asks for a commit alone where the server gives single ones, else for all branches and tags.
func requestOf(offered *packp.AdvRefs, commit plumbing.Hash) (*packp.UploadPackRequest, error) {
	request := packp.NewUploadPackRequestFromCapabilities(offered.Capabilities)
	if offered.Capabilities.Supports(capability.NoProgress) {
		if err := request.Capabilities.Set(capability.NoProgress); err != nil {
			return nil, err
		}
	}
	refs := slices.Collect(maps.Values(offered.References))
	single := slices.Contains(refs, commit) || offered.Capabilities.Supports(capability.AllowReachableSHA1InWant)
	if single && offered.Capabilities.Supports(capability.Shallow) {
		request.Wants, request.Depth = []plumbing.Hash{commit}, packp.DepthCommits(1)
		return request, request.Capabilities.Set(capability.Shallow)
	}
	for name, hash := range offered.References {
		if strings.HasPrefix(name, "refs/heads/") || strings.HasPrefix(name, "refs/tags/") {
			request.Wants = append(request.Wants, hash)
		}
	}
	return request, nil
}

// demultiplexed is the pack in an answer.
func demultiplexed(used *capability.List, answer io.Reader) io.Reader {
	switch {
	case used.Supports(capability.Sideband64k):
		return sideband.NewDemuxer(sideband.Sideband64k, answer)
	case used.Supports(capability.Sideband):
		return sideband.NewDemuxer(sideband.Sideband, answer)
	}
	return answer
}

// boundedReader ends with an error what is larger than a limit.
type boundedReader struct {
	from io.Reader
	left int64
}

func (b *boundedReader) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, problem(reasons.SourceInvalid, "spec.source.git.url: the repository is larger than %d GiB: use an archive of the commit", maxPack>>30)
	}
	return n, err
}

// session begins to speak with the server.
func (a *attempt) session(s server, endpoint *transport.Endpoint) (transport.UploadPackSession, error) {
	if endpoint.Protocol == "ssh" {
		return a.overSSH(s, endpoint)
	}
	if endpoint.User != "" || endpoint.Password != "" {
		return nil, problem(reasons.SourceInvalid, "%s: must not hold a user or password: use secretRef", s.field())
	}
	inner, err := a.transport(s.source)
	if err != nil {
		return nil, err
	}
	client := githttp.NewClient(&http.Client{Transport: answers{inner}, CheckRedirect: s.staying})
	user, password := a.secret.login()
	if user == "" && password == "" {
		return client.NewUploadPackSession(endpoint, nil)
	}
	return client.NewUploadPackSession(endpoint, &githttp.BasicAuth{Username: cmp.Or(user, tokenUser), Password: password})
}

func (a *attempt) noCommit() error {
	return problem(reasons.SourceNotFound, "spec.source.git.commit: the repository has no commit %s: push it, or correct the commit", a.Source.Git.Commit)
}

// explainGit puts an error of the library into words.
func (s server) explainGit(err error) error {
	switch {
	case errors.Is(err, transport.ErrRepositoryNotFound):
		return s.notFound()
	case errors.Is(err, transport.ErrAuthenticationRequired), errors.Is(err, transport.ErrAuthorizationFailed):
		return s.denied()
	}
	return s.explain(unhidden(err))
}

// unhidden is what an error of the library has in it.
func unhidden(err error) error {
	if hiding, ok := errors.AsType[*plumbing.UnexpectedError](err); ok {
		return hiding.Err
	}
	return err
}
