package stores

import (
	"context"
	"io"
	"net"
	"net/url"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/test/harness/process"
)

// The account of Azurite, which is the same everywhere and no secret.
const (
	azureAccount = "devstoreaccount1"
	azureKey     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

// Azure is a server that speaks the protocol of Azure Blob Storage.
type Azure struct {
	*process.Server
	// Endpoint is its URL, with the account.
	Endpoint string

	t testing.TB
}

// NewAzure starts a server at an address, for example AnyPort.
func NewAzure(t testing.TB, address string) *Azure {
	t.Helper()
	address = process.FreePort(t, address)
	s := &Azure{t: t, Endpoint: "http://" + address + "/" + azureAccount}
	folder := t.TempDir()
	host, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	s.Server = start(t, "azurite", address, syscall.SIGTERM, func() *exec.Cmd {
		return exec.Command("node", program(t, filepath.Join("azurite", "node_modules", "azurite", "dist", "src", "blob", "main.js")),
			"--blobHost", host, "--blobPort", port, "--location", folder, "--skipApiVersionCheck", "--disableTelemetry", "--silent")
	})
	return s
}

// URL is that of a store in a container.
func (s *Azure) URL(bucket, prefix string) string { return s.URLVia(s.Endpoint, bucket, prefix) }

// URLVia is URL by way of another endpoint, such as a proxy.
func (s *Azure) URLVia(endpoint, bucket, prefix string) string {
	return "azblob://" + bucket + "/" + prefix + "?account=" + azureAccount + "&endpoint=" + url.QueryEscape(endpoint)
}

// Secret has the keys and values of a Secret for it.
func (s *Azure) Secret() map[string]string { return map[string]string{"AZURE_STORAGE_KEY": azureKey} }

func (s *Azure) container(bucket string) *container.Client {
	s.t.Helper()
	key, err := azblob.NewSharedKeyCredential(azureAccount, azureKey)
	require.NoError(s.t, err)
	client, err := container.NewClientWithSharedKeyCredential(s.Endpoint+"/"+bucket, key, nil)
	require.NoError(s.t, err)
	return client
}

// MakeBucket makes a container.
func (s *Azure) MakeBucket(bucket string) {
	s.t.Helper()
	_, err := s.container(bucket).Create(context.Background(), nil)
	require.NoError(s.t, err)
}

// RemoveBucket removes a container with all that is in it.
func (s *Azure) RemoveBucket(bucket string) {
	s.t.Helper()
	_, err := s.container(bucket).Delete(context.Background(), nil)
	require.NoError(s.t, err)
}

// Keys are the names of all objects in a container that begin with prefix.
func (s *Azure) Keys(bucket, prefix string) []string {
	s.t.Helper()
	var keys []string
	pages := s.container(bucket).NewListBlobsFlatPager(&container.ListBlobsFlatOptions{Prefix: &prefix})
	for pages.More() {
		page, err := pages.NextPage(context.Background())
		require.NoError(s.t, err)
		for _, item := range page.Segment.BlobItems {
			keys = append(keys, *item.Name)
		}
	}
	return keys
}

// Get returns the content of an object.
func (s *Azure) Get(bucket, key string) []byte {
	s.t.Helper()
	answer, err := s.container(bucket).NewBlobClient(key).DownloadStream(context.Background(), nil)
	require.NoError(s.t, err)
	content, err := io.ReadAll(answer.Body)
	require.NoError(s.t, err)
	return content
}

// Put writes an object.
func (s *Azure) Put(bucket, key string, content []byte) {
	s.t.Helper()
	_, err := s.container(bucket).NewBlockBlobClient(key).UploadBuffer(context.Background(), content, nil)
	require.NoError(s.t, err)
}

// Remove removes an object.
func (s *Azure) Remove(bucket, key string) {
	s.t.Helper()
	_, err := s.container(bucket).NewBlobClient(key).Delete(context.Background(), nil)
	require.NoError(s.t, err)
}

// Token is a token by which a container can be listed and read for a time.
func (s *Azure) Token(bucket string, expires time.Duration) string {
	s.t.Helper()
	signed, err := s.container(bucket).GetSASURL(sas.ContainerPermissions{Read: true, List: true}, time.Now().Add(expires), nil)
	require.NoError(s.t, err)
	u, err := url.Parse(signed)
	require.NoError(s.t, err)
	return u.RawQuery
}
