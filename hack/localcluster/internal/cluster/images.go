package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
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

// Running returns an error when the cluster in layout is not running, else its options.
func Running(layout Layout) (Options, error) {
	options, ok, err := LoadOptions(layout)
	if err != nil {
		return Options{}, err
	}
	name := "containerd"
	if options.Simulate {
		name = "kube-apiserver"
	}
	record, recorded, err := layout.processes().Get(name)
	if err != nil {
		return Options{}, err
	}
	if !ok || !recorded || !record.Alive() {
		return Options{}, fmt.Errorf("no cluster is running in %s: start it with \"localcluster up\"", layout.State)
	}
	return options, nil
}

// loadPause makes and loads the image of the container that holds a pod's namespaces.
func (c Cluster) loadPause(ctx context.Context) error {
	built, err := image.Build(image.Spec{
		Files:      []image.File{{Source: c.Layout.program("pause"), Path: "/pause", Mode: 0o755}},
		Entrypoint: []string{"/pause"},
		User:       "65535:65535",
	})
	if err != nil {
		return fmt.Errorf("build the pause image: %w", err)
	}
	defer built.Close()
	reader, writer := io.Pipe()
	go func() { writer.CloseWithError(built.WriteArchive(writer, []string{PauseImage})) }()
	defer reader.Close()
	_, err = c.LoadImage(ctx, reader)
	return err
}

// ctr runs containerd's client in the namespace of Kubernetes.
func (c Cluster) ctr(ctx context.Context, input io.Reader, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.Layout.program("ctr"),
		append([]string{"--address", c.Layout.containerdSocket(), "--namespace", "k8s.io"}, args...)...)
	cmd.Stdin = input
	cmd.Env = os.Environ()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}
