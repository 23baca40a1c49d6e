// Package scorecard makes the image that operator-sdk's scorecard runs its own tests in.
package scorecard

import (
	"context"
	"path/filepath"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/cluster"
	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/component"
	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/host"
	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/image"
)

// EnsureImage builds the image and loads it into the node unless it is there already, and returns its name.
func EnsureImage(ctx context.Context, c cluster.Cluster) (name string, err error) {
	if c.Options.Simulate {
		return "", cluster.ErrSimulated
	}
	if err := c.Builder().Ensure(ctx, component.For(component.Scorecard)); err != nil {
		return "", err
	}
	busybox, err := host.Busybox(ctx, c.Out)
	if err != nil {
		return "", err
	}
	version, err := c.Layout.Version("operator-sdk")
	if err != nil {
		return "", err
	}
	name = "localhost/localcluster/scorecard-test:" + version
	_, err = c.EnsureImage(ctx, name, spec(c.Layout.Bin, busybox))
	return name, err
}

// spec describes the image. It has no entrypoint, because operator-sdk names the whole command of the container that
// unpacks the bundle (tar) as arguments, and its other containers name commands of their own.
func spec(bin, busybox string) image.Spec {
	s := image.Spec{User: "1001:1001", CACertificates: true, Accounts: true}
	s.Files = append(s.Files, image.File{Source: filepath.Join(bin, "scorecard-test"), Path: "/usr/local/bin/scorecard-test", Mode: 0o755})
	for _, program := range []string{"tar", "sh", "sleep"} {
		s.Files = append(s.Files, image.File{Source: busybox, Path: "/bin/" + program, Mode: 0o755})
	}
	return s
}
