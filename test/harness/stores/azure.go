package stores

import (
	"context"
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
	"gocloud.dev/blob"
	"gocloud.dev/blob/azureblob"

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
	objects
	// Endpoint is its URL, with the account.
	Endpoint string
}

// NewAzure starts a server at an address, for example AnyPort.
func NewAzure(t testing.TB, address string) *Azure {
	t.Helper()
	address = process.FreePort(t, address)
	s := &Azure{Endpoint: "http://" + address + "/" + azureAccount}
	s.objects = objects{t, func(bucket string) (*blob.Bucket, error) {
		return azureblob.OpenBucket(context.Background(), s.container(bucket), nil)
	}}
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

// Token is a token by which a container can be listed and read for a time.
func (s *Azure) Token(bucket string, expires time.Duration) string {
	s.t.Helper()
	signed, err := s.container(bucket).GetSASURL(sas.ContainerPermissions{Read: true, List: true}, time.Now().Add(expires), nil)
	require.NoError(s.t, err)
	u, err := url.Parse(signed)
	require.NoError(s.t, err)
	return u.RawQuery
}
