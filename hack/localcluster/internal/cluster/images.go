package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/image"
)

// ErrSimulated says that something needs a node that runs pods.
var ErrSimulated = errors.New("the nodes of this cluster are simulated and hold no images")

// LoadImage imports an image archive (as "docker save" or an OCI layout in a tar file) into the node's
// images and returns the names it has there.
func (c Cluster) LoadImage(ctx context.Context, archive io.Reader) ([]string, error) {
	if c.Options.Simulate {
		return nil, ErrSimulated
	}
	output, err := c.ctr(ctx, archive, "images", "import", "-")
	if err != nil {
		return nil, fmt.Errorf("import image: %w", err)
	}
	var names []string
	for line := range strings.Lines(output) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[1] == "saved" {
			names = append(names, fields[0])
		}
	}
	return names, nil
}

// Running returns the cluster in layout with the options it runs with. It is an error when it does not run.
func Running(layout Layout) (Cluster, error) {
	options, ok, err := LoadOptions(layout)
	if err != nil {
		return Cluster{}, err
	}
	name := "containerd"
	if options.Simulate {
		name = "kube-apiserver"
	}
	_, running, err := layout.processes().Running(name)
	if err == nil && (!ok || !running) {
		err = fmt.Errorf("no cluster is running in %s: start it with \"localcluster up\"", layout.State)
	}
	return Cluster{Layout: layout, Options: options, Out: os.Stdout}, err
}

func (c Cluster) loadPause(ctx context.Context) error {
	_, err := c.EnsureImage(ctx, PauseImage, image.Spec{
		Files:      []image.File{{Source: c.Layout.program("pause"), Path: "/pause", Mode: 0o755}},
		Entrypoint: []string{"/pause"},
		User:       "65535:65535",
	})
	return err
}

// LoadBuilt loads a built image into the node's images under the names tags, and returns the names it has there.
func (c Cluster) LoadBuilt(ctx context.Context, built *image.Image, tags []string) ([]string, error) {
	reader, writer := io.Pipe()
	go func() { writer.CloseWithError(built.WriteArchive(writer, tags)) }()
	defer reader.Close()
	return c.LoadImage(ctx, reader)
}

// stampLabel is the label of the node's record of an image with what the image was built from.
const stampLabel = "localcluster.dcnlab.com/stamp"

// EnsureImage builds the image name from spec and loads it into the node's images, unless it is there already and
// none of its files has changed. It returns a reference with the image's digest: some controllers have such an
// image pulled only when it is missing, and one that is only loaded cannot be pulled.
func (c Cluster) EnsureImage(ctx context.Context, name string, spec image.Spec) (reference string, err error) {
	if c.Options.Simulate {
		return "", ErrSimulated
	}
	full, err := image.FullName(name)
	if err != nil {
		return "", err
	}
	stamp, err := spec.Stamp()
	if err != nil {
		return "", err
	}
	repository := full[:strings.LastIndexByte(full, ':')]
	listed, err := c.ctr(ctx, nil, "images", "ls", "name=="+full)
	if err != nil {
		return "", fmt.Errorf("look for image %s: %w", full, err)
	}
	if digest := stampedDigest(listed, stamp); digest != "" {
		return repository + "@" + digest, nil
	}
	built, err := image.Build(spec)
	if err != nil {
		return "", fmt.Errorf("build image %s: %w", full, err)
	}
	defer built.Close()
	digest, err := built.Digest()
	if err != nil {
		return "", err
	}
	if _, err := c.LoadBuilt(ctx, built, []string{full}); err != nil {
		return "", err
	}
	reference = repository + "@" + digest.String()
	if _, err := c.ctr(ctx, nil, "images", "tag", "--force", full, reference); err != nil {
		return "", fmt.Errorf("name image %s: %w", reference, err)
	}
	// The stamp last: it says that all of the above is done.
	if _, err := c.ctr(ctx, nil, "images", "label", full, stampLabel+"="+stamp); err != nil {
		return "", fmt.Errorf("mark image %s: %w", full, err)
	}
	return reference, nil
}

// stampedDigest returns the digest of the image in the output of "ctr images ls" that carries stamp, else nothing.
func stampedDigest(listed, stamp string) string {
	for line := range strings.Lines(listed) {
		fields := strings.Fields(line)
		if len(fields) < 3 || !slices.Contains(strings.Split(fields[len(fields)-1], ","), stampLabel+"="+stamp) {
			continue
		}
		return fields[2]
	}
	return ""
}

func (c Cluster) nodeImage(ctx context.Context, name string) (string, error) {
	full, err := image.FullName(name)
	if err != nil {
		return "", err
	}
	listed, err := c.ctr(ctx, nil, "images", "ls", "--quiet")
	if err != nil {
		return "", err
	}
	for _, candidate := range []string{name, full} {
		if slices.Contains(strings.Fields(listed), candidate) {
			return candidate, nil
		}
	}
	return "", fmt.Errorf("the node has no image %s: load it first", full)
}

func (c Cluster) ctr(ctx context.Context, input io.Reader, args ...string) (string, error) {
	return c.ctrAt(ctx, c.Layout.containerdSocket(), input, args...)
}
