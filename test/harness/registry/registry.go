// Package registry starts real registries of images and artifacts for tests: that of the local cluster, which `make test` builds.
package registry

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
	"github.com/dcnlab/spot-training-operator/test/harness/httpsserver"
	"github.com/dcnlab/spot-training-operator/test/harness/process"
)

// Start starts a registry for all, without encryption, and returns its address.
func Start(t testing.TB) string {
	t.Helper()
	program := filepath.Join(apiserver.Binaries(), "registry")
	_, err := os.Stat(program)
	require.NoError(t, err, "run make test, which builds the registry, or set KUBEBUILDER_ASSETS to a folder that has it")
	folder := t.TempDir()
	address := process.FreePort(t, process.AnyPort)
	config := filepath.Join(folder, "config.yml")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil,
		"version: 0.1\nstorage:\n  filesystem: {rootdirectory: %q}\nhttp:\n  addr: %s\n", folder, address), 0o600))
	process.New(t, process.Options{
		Name:    "registry",
		Command: func() *exec.Cmd { return exec.Command(program, "serve", config) },
		Ready: func() error {
			response, err := http.Get("http://" + address + "/v2/")
			if err != nil {
				return err
			}
			return response.Body.Close()
		},
		Log:  filepath.Join(folder, "log"),
		Stop: syscall.SIGTERM,
	})
	return address
}

// Private is a registry by HTTPS for one user.
type Private struct {
	*httpsserver.Server

	// Address is its host and port.
	Address string
	// Username and Password of the user.
	Username, Password string
}

// StartPrivate starts a registry behind a proxy that has the encryption and the login, which the registry of the local cluster lacks. Without
// a listener it listens on the loopback interface.
func StartPrivate(t testing.TB, listener net.Listener, username, password string) *Private {
	t.Helper()
	inner := &url.URL{Scheme: "http", Host: Start(t)}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(inner)
		r.SetXForwarded()
		r.Out.Host = r.In.Host
	}}
	server := httpsserver.Start(t, listener, httpsserver.Guarded(username, password, proxy))
	return &Private{Server: server, Address: strings.TrimPrefix(server.URL, "https://"), Username: username, Password: password}
}

// File pushes an artifact of one file, as ORAS does, and returns its reference with the digest.
func (p *Private) File(t testing.TB, repository, title string, content []byte) string {
	t.Helper()
	image, err := mutate.Append(mutate.MediaType(empty.Image, types.OCIManifestSchema1), mutate.Addendum{
		Layer: static.NewLayer(content, "text/plain"), MediaType: "text/plain", Annotations: map[string]string{"org.opencontainers.image.title": title},
	})
	require.NoError(t, err)
	return p.Push(t, repository, image)
}

// Push pushes an image or artifact, and returns its reference with the digest.
func (p *Private) Push(t testing.TB, repository string, image v1.Image) string {
	t.Helper()
	digest, err := image.Digest()
	require.NoError(t, err)
	reference, err := name.NewDigest(p.Address + "/" + repository + "@" + digest.String())
	require.NoError(t, err)
	require.NoError(t, remote.Write(reference, image, p.Options()...))
	return reference.String()
}

// Options are those of the user.
func (p *Private) Options() []remote.Option {
	return []remote.Option{remote.WithTransport(p.Transport), remote.WithAuth(&authn.Basic{Username: p.Username, Password: p.Password})}
}
