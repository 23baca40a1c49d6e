package cluster

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// RESTConfig returns a client configuration with the administrator's rights, without limits of its own.
func (c Cluster) RESTConfig() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.Layout.Kubeconfig())
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = -1, -1
	config.WarningHandler = rest.NoWarnings{}
	return config, nil
}

// Kubectl runs kubectl with the administrator's rights and returns what it printed. What it complains of is
// part of the error.
func (c Cluster) Kubectl(ctx context.Context, input io.Reader, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.Layout.program("kubectl"), append([]string{"--kubeconfig", c.Layout.Kubeconfig()}, args...)...)
	cmd.Stdin = input
	cmd.Env = os.Environ()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("kubectl %s: %w: %s", args[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}
