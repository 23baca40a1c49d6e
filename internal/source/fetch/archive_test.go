package fetch

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/dcnlab/spot-training-operator/api/podtemplate"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/test/harness/stores"
)

// archiveOf is the source of an archive at a URI.
func archiveOf(uri string, content []byte) podtemplate.Source {
	sum := sha256.Sum256(content)
	return podtemplate.Source{Archive: &podtemplate.ArchiveSource{URI: uri, SHA256: hex.EncodeToString(sum[:]), SecretRef: secretRef}}
}

func TestAPrivateArchiveNeedsItsCredentials(t *testing.T) {
	t.Parallel()
	packed := packedFiles(t, program)
	url, ca := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch _, password, _ := r.BasicAuth(); {
		case password != planted && r.Header.Get("Authorization") != "Bearer "+planted:
			http.Error(w, "not with "+r.Header.Get("Authorization"), http.StatusForbidden)
		case r.URL.Path != "/code.tar.gz":
			http.NotFound(w, r)
		default:
			_, _ = w.Write(packed)
		}
	})
	from := archiveOf(url+"/code.tar.gz", packed)
	run(t, from, map[string]string{"username": "bob", "password": planted, "ca.crt": ca}).has(t, program)
	run(t, from, map[string]string{"token": planted, "ca.crt": ca}).has(t, program)
	run(t, from, map[string]string{"token": planted + "x", "ca.crt": ca}).fails(t, reasons.SourceAccessDenied,
		"refuses access: correct the Secret fetch of spec.source.archive.secretRef")
	run(t, archiveOf(url+"/other", packed), map[string]string{"token": planted, "ca.crt": ca}).fails(t, reasons.SourceNotFound, "has no such file: correct the uri")
	from.Archive.SecretRef = nil
	run(t, from, map[string]string{"ca.crt": ca}).fails(t, reasons.SourceAccessDenied,
		"needs credentials, or has no such file: name a Secret in spec.source.archive.secretRef")
}

func TestAnArchiveIsTheOneThatIsNamed(t *testing.T) {
	t.Parallel()
	packed := packedFiles(t, program)
	url, ca := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(packed) })
	from := archiveOf(url, []byte("another"))
	run(t, from, map[string]string{"ca.crt": ca}).fails(t, reasons.SourceInvalid,
		"spec.source.archive.uri: the file has SHA-256 "+archiveOf(url, packed).Archive.SHA256+
			", not "+from.Archive.SHA256+" of spec.source.archive.sha256: correct it, or the file")
}

func TestAnArchiveStaysInItsDirectory(t *testing.T) {
	t.Parallel()
	packed := packedFiles(t, map[string]string{"../../x": "x"})
	url, ca := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(packed) })
	run(t, archiveOf(url, packed), map[string]string{"ca.crt": ca}).fails(t, reasons.SourceInvalid,
		"the entry ../../x leads out of the directory: pack the archive with names below it")
}

func TestAnArchiveThatIsCutOffIsFetchedAgain(t *testing.T) {
	t.Parallel()
	packed := packedFiles(t, program)
	requests := 0
	url, ca := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		switch requests++; requests {
		case 1:
			http.Error(w, "busy", http.StatusServiceUnavailable)
		case 2:
			w.Header().Set("Content-Length", strconv.Itoa(len(packed)))
			_, _ = w.Write(packed[:len(packed)/2])
		default:
			_, _ = w.Write(packed)
		}
	})
	f := run(t, archiveOf(url, packed), map[string]string{"ca.crt": ca}).has(t, program)
	assert.Equal(t, []time.Duration{2 * time.Second, 4 * time.Second}, f.clock.pauses)
}

func TestAServerThatStaysBusyIsGivenUp(t *testing.T) {
	t.Parallel()
	url, ca := serve(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "busy", http.StatusTooManyRequests) })
	f := run(t, archiveOf(url, nil), map[string]string{"ca.crt": ca})
	f.fails(t, reasons.SourceUnreachable, "cannot serve at the moment: status 429")
	assert.Len(t, f.clock.pauses, 6)
	f = run(t, archiveOf("https://127.0.0.1:1/x", nil), map[string]string{"ca.crt": ca})
	f.fails(t, reasons.SourceUnreachable, "127.0.0.1:1 cannot be reached (dial: connect: connection refused)")
	assert.Len(t, f.clock.pauses, 6)
}

func TestCredentialsDoNotFollowARedirect(t *testing.T) {
	t.Parallel()
	packed := packedFiles(t, program)
	elsewhere, ca := serve(t, func(w http.ResponseWriter, r *http.Request) {
		assert.Empty(t, r.Header.Get("Authorization"))
		_, _ = w.Write(packed)
	})
	url, own := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/plain" {
			http.Redirect(w, r, strings.Replace(elsewhere, "https://", "http://", 1), http.StatusFound)
			return
		}
		http.Redirect(w, r, elsewhere, http.StatusFound)
	})
	secret := map[string]string{"username": "bob", "password": planted, "ca.crt": own + ca}
	run(t, archiveOf(url, packed), secret).has(t, program)
	run(t, archiveOf(url+"/plain", packed), secret).fails(t, reasons.SourceInvalid, "which is not encrypted")
}

func TestAnArchiveIsTakenFromEachObjectStore(t *testing.T) {
	t.Parallel()
	const bucket = "code"
	packed := packedFiles(t, program)
	stores.OnEach(t, func(t *testing.T, s stores.Store) {
		s.MakeBucket(bucket)
		s.Put(bucket, "team/code.tar.gz", packed)
		run(t, archiveOf(s.URL(bucket, "team/code.tar.gz"), packed), s.Secret()).has(t, program)
		run(t, archiveOf(s.URL(bucket, "team/none.tar.gz"), packed), s.Secret()).fails(t, reasons.SourceNotFound, "there is no ")
		run(t, archiveOf(s.URL(bucket, "team/code.tar.gz"), packed), map[string]string{"other": "x"}).fails(t, reasons.SourceAccessDenied, "there are no credentials for")
	})
}
