package stores

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"cloud.google.com/go/storage"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gocloud.dev/blob"
	"gocloud.dev/blob/gcsblob"
	"gocloud.dev/gcp"
	"golang.org/x/sys/unix"
	"google.golang.org/api/option"

	"github.com/dcnlab/spot-training-operator/test/harness/process"
)

// GCS is a server that speaks the protocol of Google Cloud Storage.
type GCS struct {
	*process.Server
	objects
	// Endpoint is its URL.
	Endpoint    string
	folder, key string
}

// NewGCS starts a server at an address, for example AnyPort. Google's service that gives a token for the key of a service
// account is not part of it: it accepts any token, and the key that it gives has one from the test itself.
func NewGCS(t testing.TB, address string) *GCS {
	t.Helper()
	address = process.FreePort(t, address)
	s := &GCS{Endpoint: "http://" + address, folder: filepath.Join(t.TempDir(), "gcs"), key: serviceAccountKey(t)}
	s.objects = objects{t, func(bucket string) (*blob.Bucket, error) {
		options := []option.ClientOption{storage.WithJSONReads(), option.WithEndpoint(s.Endpoint + "/storage/v1/")}
		return gcsblob.OpenBucket(context.Background(), gcp.NewAnonymousHTTPClient(http.DefaultTransport), bucket, &gcsblob.Options{ClientOptions: options})
	}}
	require.NoError(t, os.MkdirAll(s.folder, 0o755))
	host, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	s.Server = start(t, "fake-gcs-server", address, syscall.SIGKILL, func() *exec.Cmd {
		s.dropHalves()
		return exec.Command(program(t, "fake-gcs-server"), "-scheme", "http", "-host", host, "-port", port,
			"-backend", "filesystem", "-filesystem-root", s.folder, "-external-url", s.Endpoint, "-public-host", address, "-log-level", "warn")
	})
	return s
}

// dropHalves removes what the server was killed in the middle of: an object whose attributes were not written yet, with which it lists
// none of the bucket. The service itself has no half of an object.
func (s *GCS) dropHalves() {
	err := filepath.WalkDir(s.folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if _, err := unix.Getxattr(path, "user.metadata", nil); errors.Is(err, unix.ENODATA) {
			return os.Remove(path)
		}
		return nil
	})
	assert.NoError(s.t, err)
}

func serviceAccountKey(t testing.TB) string {
	t.Helper()
	tokens := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"access_token":"test","token_type":"Bearer","expires_in":3600}`))
	}))
	t.Cleanup(tokens.Close)
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	key, err := json.Marshal(map[string]string{
		"type": "service_account", "project_id": "test", "private_key_id": "1", "client_id": "1",
		"client_email": "test@test.iam.gserviceaccount.com", "token_uri": tokens.URL,
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
	})
	require.NoError(t, err)
	return string(key)
}

// URL is that of a store in a bucket.
func (s *GCS) URL(bucket, prefix string) string { return s.URLVia(s.Endpoint, bucket, prefix) }

// URLVia is URL by way of another endpoint, such as a proxy.
func (s *GCS) URLVia(endpoint, bucket, prefix string) string {
	return "gs://" + bucket + "/" + prefix + "?endpoint=" + url.QueryEscape(endpoint)
}

// Secret has the keys and values of a Secret for it.
func (s *GCS) Secret() map[string]string { return map[string]string{"key.json": s.key} }

// MakeBucket makes a bucket.
func (s *GCS) MakeBucket(bucket string) {
	s.t.Helper()
	require.NoError(s.t, os.MkdirAll(filepath.Join(s.folder, bucket), 0o755))
}

// RemoveBucket removes a bucket with all that is in it. The server is down meanwhile: it makes a bucket again for an object whose
// upload began before.
func (s *GCS) RemoveBucket(bucket string) {
	s.t.Helper()
	s.Stop()
	require.NoError(s.t, os.RemoveAll(filepath.Join(s.folder, bucket)))
	s.Start()
}
