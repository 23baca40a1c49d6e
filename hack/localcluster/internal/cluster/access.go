package cluster

import (
	"context"
	"fmt"
	"io"
	"os/exec"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/host"
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
	output, err := host.Output(cmd)
	if err != nil {
		err = fmt.Errorf("kubectl %s: %w", args[0], err)
	}
	return output, err
}
