package stores

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"

	"github.com/dcnlab/spot-training-operator/test/harness/process"
)

// S3 is an S3 server, whose buckets are directories.
type S3 struct {
	*process.Server
	objects
	// Endpoint is its URL.
	Endpoint string
	// AccessKeyID and SecretAccessKey are those of its only user.
	AccessKeyID, SecretAccessKey string
	folder                       string
}

// NewS3 starts an S3 server at an address, for example AnyPort.
func NewS3(t testing.TB, address string) *S3 {
	t.Helper()
	address = process.FreePort(t, address)
	s := &S3{
		Endpoint: "http://" + address, AccessKeyID: "AKIATESTTESTTESTTEST",
		SecretAccessKey: "planted-secret-of-the-s3-server-0123456789", folder: filepath.Join(t.TempDir(), "s3"),
	}
	data, meta := filepath.Join(s.folder, "data"), filepath.Join(s.folder, "meta")
	// Behind the server's back, also while it is stopped.
	s.objects = objects{t, func(bucket string) (*blob.Bucket, error) {
		return fileblob.OpenBucket(filepath.Join(data, bucket), &fileblob.Options{NoTempDir: true, Metadata: fileblob.MetadataDontWrite})
	}}
	for _, folder := range []string{data, meta} {
		require.NoError(t, os.MkdirAll(folder, 0o755))
	}
	s.Server = start(t, "versitygw", address, syscall.SIGKILL, func() *exec.Cmd {
		command := exec.Command(program(t, "versitygw"), "--port", address, "--quiet", "--keep-alive", "posix", "--sidecar", meta, data)
		command.Env = append(os.Environ(), "ROOT_ACCESS_KEY_ID="+s.AccessKeyID, "ROOT_SECRET_ACCESS_KEY="+s.SecretAccessKey)
		return command
	})
	return s
}

// URL is that of a store in a bucket.
func (s *S3) URL(bucket, prefix string) string { return s.URLVia(s.Endpoint, bucket, prefix) }

// URLVia is URL by way of another endpoint, such as a proxy.
func (s *S3) URLVia(endpoint, bucket, prefix string) string {
	return fmt.Sprintf("s3://%s/%s?region=us-east-1&endpoint=%s", bucket, prefix, url.QueryEscape(endpoint))
}

// Secret has the keys and values of a Secret for it.
func (s *S3) Secret() map[string]string {
	return map[string]string{"AWS_ACCESS_KEY_ID": s.AccessKeyID, "AWS_SECRET_ACCESS_KEY": s.SecretAccessKey}
}

// MakeBucket makes a bucket.
func (s *S3) MakeBucket(bucket string) {
	s.t.Helper()
	require.NoError(s.t, os.MkdirAll(filepath.Join(s.folder, "data", bucket), 0o755))
}

// RemoveBucket removes a bucket with all that is in it. The server may be writing into it.
func (s *S3) RemoveBucket(bucket string) {
	s.t.Helper()
	for _, of := range []string{"data", "meta"} {
		var err error
		for range 100 {
			if err = os.RemoveAll(filepath.Join(s.folder, of, bucket)); err == nil {
				break
			}
		}
		require.NoError(s.t, err)
	}
}
