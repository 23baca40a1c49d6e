// Package mirror is an image registry on the loopback interface that stands in for a public one, so that opm can read
// images under their public names before anybody has pushed them.
package mirror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Mirror is a running registry. Close ends it.
type Mirror struct {
	host    string
	address string
	server  *http.Server
	done    chan error
}

// Start runs a registry on a free port that stands in for the registry host, such as registry.example.com. It keeps
// images in memory.
func Start(host string) (*Mirror, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start an image registry: %w", err)
	}
	m := &Mirror{
		host: host, address: listener.Addr().String(), done: make(chan error, 1),
		server: &http.Server{Handler: registry.New(registry.Logger(log.New(io.Discard, "", 0))), ReadHeaderTimeout: 10 * time.Second},
	}
	go func() { m.done <- m.server.Serve(listener) }()
	return m, nil
}

// Close ends the registry.
func (m *Mirror) Close() error {
	err := m.server.Close()
	if served := <-m.done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// Push keeps an image under a public name, which begins with the host.
func (m *Mirror) Push(ctx context.Context, image v1.Image, public string) error {
	path, ok := strings.CutPrefix(public, m.host+"/")
	if !ok {
		return fmt.Errorf("image %s is not of the registry %s", public, m.host)
	}
	reference, err := name.NewTag(m.address+"/"+path, name.Insecure, name.StrictValidation)
	if err != nil {
		return fmt.Errorf("image name %s: %w", public, err)
	}
	if err := remote.Write(reference, image, remote.WithContext(ctx)); err != nil {
		return fmt.Errorf("push %s: %w", public, err)
	}
	return nil
}

// Home makes folder a home for programs built on containers/image, in which they take this registry for the public one,
// and returns the variables that make it theirs. Images need no signature there.
func (m *Mirror) Home(folder string) ([]string, error) {
	containers := filepath.Join(folder, ".config", "containers")
	registries := fmt.Sprintf("[[registry]]\nprefix = %q\nlocation = %q\n", m.host, m.address)
	policy := `{"default": [{"type": "insecureAcceptAnything"}]}` + "\n"
	err := errors.Join(
		os.MkdirAll(containers, 0o755),
		os.WriteFile(filepath.Join(containers, "registries.conf"), []byte(registries), 0o644),
		os.WriteFile(filepath.Join(containers, "policy.json"), []byte(policy), 0o644),
	)
	if err != nil {
		return nil, fmt.Errorf("configure the image registry: %w", err)
	}
	return []string{
		"HOME=" + folder, "XDG_CONFIG_HOME=" + filepath.Join(folder, ".config"), "XDG_CACHE_HOME=" + filepath.Join(folder, ".cache"),
		"DOCKER_CONFIG=" + filepath.Join(folder, ".docker"),
	}, nil
}
