package fetch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/source"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/report"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/store"
)

// maxArchive bounds an archive: what is in it may be as much.
const maxArchive = 1<<30 + 64<<20

// fromArchive downloads an archive, compares its checksum, and unpacks it.
func (a *attempt) fromArchive(ctx context.Context) error {
	spec := a.Source.Archive
	from, err := url.Parse(spec.URI)
	if err != nil {
		return problem(reasons.SourceInvalid, "spec.source.archive.uri: is no URI: write for example https://host/path")
	}
	s := server{"spec.source.archive", "uri", from.Host, "file", a.Source.Secret()}
	path := filepath.Join(a.scratch, "archive")
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	into := &bounded{to: file, left: maxArchive, of: s}
	sum := sha256.New()
	switch from.Scheme {
	case "https":
		err = a.download(ctx, s, io.MultiWriter(into, sum))
	case "s3", "gs", "azblob":
		err = a.fromStore(ctx, s, io.MultiWriter(into, sum))
	default:
		err = problem(reasons.SourceInvalid, "spec.source.archive.uri: a uri begins with https://, s3://, gs:// or azblob://")
	}
	if err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	if is := hex.EncodeToString(sum.Sum(nil)); is != spec.SHA256 {
		return problem(reasons.SourceInvalid, "spec.source.archive.uri: the file has SHA-256 %s, not %s of spec.source.archive.sha256: correct it, or the file",
			is, spec.SHA256)
	}
	if err = a.unpack(path); err == nil {
		return nil
	}
	if known := ownProblem(s.source, err); known != nil {
		return known
	}
	return err
}

// download asks an HTTPS server for the file.
func (a *attempt) download(ctx context.Context, s server, to io.Writer) error {
	transport, err := a.transport(s.source)
	if err != nil {
		return err
	}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, a.Source.Archive.URI, http.NoBody)
	if err != nil {
		return problem(reasons.SourceInvalid, "spec.source.archive.uri: is no URI: write for example https://host/path")
	}
	// A server may hold the file compressed, and hand it out otherwise than it is.
	request.Header.Set("Accept-Encoding", "identity")
	switch user, password := a.secret.login(); {
	case user != "":
		request.SetBasicAuth(user, password)
	case password != "":
		request.Header.Set("Authorization", "Bearer "+password)
	}
	answer, err := (&http.Client{Transport: answers{transport}, CheckRedirect: s.onward}).Do(request)
	if err != nil {
		return s.explain(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return s.status(answer.StatusCode)
	}
	if _, err = io.Copy(to, answer.Body); err != nil {
		return s.explain(err)
	}
	return nil
}

// fromStore asks an object store for the file.
func (a *attempt) fromStore(ctx context.Context, s server, to io.Writer) error {
	folder := ""
	if s.secret != "" {
		folder = a.Credentials
	}
	bucket, err := store.New(a.Source.Archive.URI, folder)
	if err != nil {
		return problem(reasons.SourceInvalid, "spec.source.archive.uri: %v", err)
	}
	if bucket.RootCAs, err = a.roots(s.source); err != nil {
		return err
	}
	err = bucket.Copy(ctx, bucket.Prefix, to)
	if known := ownProblem(s.source, err); err == nil || known != nil {
		return known
	}
	if errors.Is(err, store.ErrNoObject) {
		return problem(reasons.SourceNotFound, "%s: there is no %s: correct the uri", s.field(), bucket)
	}
	said := bucket.Explain(err)
	switch said.Reason {
	case report.ReasonBucketNotFound:
		return problem(reasons.SourceNotFound, "%s: there is no bucket or container %s: correct the uri", s.field(), bucket.Bucket)
	case report.ReasonCredentialsMissing:
		return problem(reasons.SourceAccessDenied, "%s: %s", s.source, said.Message)
	case report.ReasonAccessDenied:
		if s.secret == "" {
			return problem(reasons.SourceAccessDenied, "%s: the identity of the job's ServiceAccount may not read %s: grant that, or name a Secret in %s.secretRef",
				s.field(), bucket, s.source)
		}
		return s.denied()
	}
	return &passing{&source.Problem{Reason: reasons.SourceUnreachable, Message: s.field() + ": " + said.Message}}
}

// bounded refuses to write more than a limit.
type bounded struct {
	to   io.Writer
	left int64
	of   server
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.left -= int64(len(p)); b.left < 0 {
		return 0, problem(reasons.SourceInvalid, "%s: the %s is larger than %d MiB: leave out what the program does not need",
			b.of.field(), b.of.what, maxArchive>>20)
	}
	return b.to.Write(p)
}
