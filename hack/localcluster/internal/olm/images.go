package olm

import (
	"context"
	"embed"
	"path/filepath"
	"strings"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/host"
	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/image"
)

//go:embed templates
var templates embed.FS

// workloadUser is the user of images whose pods do not say which one to run as.
const workloadUser = "1001:1001"

// images loads the images of OLM's pods into the node and returns the values of the templates.
func (o *OLM) images(ctx context.Context) (values, error) {
	busybox, err := host.Busybox(ctx, o.Cluster.Out)
	if err != nil {
		return values{}, err
	}
	v := values{Namespace: Namespace, OperatorNamespace: OperatorNamespace}
	version, err := o.Cluster.Layout.Version("olm")
	if err != nil {
		return values{}, err
	}
	v.Version = strings.TrimPrefix(version, "v")
	v.OLMImage, err = o.Cluster.EnsureImage(ctx, "localhost/localcluster/olm:"+version, olmImage(o.Cluster.Layout.Bin, busybox))
	if err != nil {
		return values{}, err
	}
	if version, err = o.Cluster.Layout.Version("opm"); err != nil {
		return values{}, err
	}
	v.OPMImage, err = o.Cluster.EnsureImage(ctx, "localhost/localcluster/opm:"+version, opmImage(o.Cluster.Layout.Bin))
	return v, err
}

// olmImage is the image of OLM's operators, which also holds what they copy into the pods that unpack bundles and
// catalogs: a cp, and programs that find the content.
func olmImage(bin, busybox string) image.Spec {
	spec := image.Spec{Entrypoint: []string{"/bin/olm"}, User: workloadUser, CACertificates: true, Accounts: true}
	for _, file := range []struct{ program, path string }{
		{"olm-operator", "/bin/olm"}, {"catalog-operator", "/bin/catalog"}, {"package-server", "/bin/package-server"},
		{"cpb", "/bin/cpb"}, {"copy-content", "/bin/copy-content"},
	} {
		spec.Files = append(spec.Files, image.File{Source: filepath.Join(bin, file.program), Path: file.path, Mode: 0o755})
	}
	spec.Files = append(spec.Files, image.File{Source: busybox, Path: "/bin/cp", Mode: 0o755})
	return spec
}

// opmImage is the image with which OLM stores the content of a bundle; with a catalog added it can serve that.
func opmImage(bin string) image.Spec {
	return image.Spec{
		Entrypoint: []string{"/bin/opm"}, User: workloadUser, CACertificates: true, Accounts: true,
		Files: []image.File{
			{Source: filepath.Join(bin, "opm"), Path: "/bin/opm", Mode: 0o755},
			{Source: filepath.Join(bin, "grpc_health_probe"), Path: "/bin/grpc_health_probe", Mode: 0o755},
		},
	}
}
