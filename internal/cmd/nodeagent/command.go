// Package nodeagent is the subcommand that runs on every spot node and tells the cluster when the node is to go.
package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/internal/cmd/logging"
	"github.com/dcnlab/spot-training-operator/internal/cmd/memory"
	"github.com/dcnlab/spot-training-operator/internal/nodenotice/metadata"
	"github.com/dcnlab/spot-training-operator/internal/nodenotice/watcher"
)

// nodeVariable names the node, by the downward API.
const nodeVariable = "NODE_NAME"

// memoryLimit is where Go's garbage collector begins to try harder.
const memoryLimit = 48 << 20

// options are the flags of the subcommand.
type options struct {
	node         string
	metadataURL  string
	probeAddress string
}

// New returns the subcommand.
func New() *cobra.Command {
	var o options
	command := &cobra.Command{
		Use:   "node-agent",
		Short: "Tell the cluster when the instance under this node is to go (runs on every spot node)",
		Args:  cobra.NoArgs,
		RunE:  func(command *cobra.Command, _ []string) error { return run(command.Context(), o) },
	}
	flags := command.Flags()
	flags.StringVar(&o.node, "node-name", os.Getenv(nodeVariable), "name of the node that the agent runs on (environment: "+nodeVariable+")")
	flags.StringVar(&o.metadataURL, "metadata-url", metadata.DefaultURL, "the instance's metadata server")
	flags.StringVar(&o.probeAddress, "health-probe-bind-address", ":8081", "address of /healthz")
	return command
}

// validate names the flag that is wrong, and the way out.
func (o *options) validate() error {
	if o.node == "" {
		return fmt.Errorf("--node-name: is not set: set it, or the environment variable %s, to the name of the node", nodeVariable)
	}
	if is, err := url.Parse(o.metadataURL); err != nil || is.Scheme != "http" && is.Scheme != "https" || is.Host == "" {
		return fmt.Errorf("--metadata-url: %q is no URL such as %s", o.metadataURL, metadata.DefaultURL)
	}
	return nil
}

func run(ctx context.Context, o options) error {
	if err := o.validate(); err != nil {
		return err
	}
	memory.Limit(50, memoryLimit)
	log := logging.FromEnvironment()
	c, err := newClient()
	if err != nil {
		return err
	}
	agent := &watcher.Agent{
		Node: o.node, Client: c, Log: log.With("node", o.node),
		Metadata: metadata.New(metadata.Options{URL: o.metadataURL, Log: log}),
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.probeAddress)
	if err != nil {
		return fmt.Errorf("--health-probe-bind-address: %w", err)
	}
	probes := http.NewServeMux()
	probes.Handle("/healthz", agent)
	server := &http.Server{Handler: probes, ReadHeaderTimeout: 5 * time.Second}
	serving := make(chan error, 1)
	go func() { serving <- server.Serve(listener) }()
	log.Info("following the metadata server", "node", o.node, "url", o.metadataURL)
	agent.Run(ctx)
	if err := errors.Join(server.Close(), <-serving); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the probes: %w", err)
	}
	return nil
}

// newClient knows Nodes and asks the API server for nothing else, so that the first notice is not held up by discovery.
func newClient() (client.Client, error) {
	config, err := ctrl.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register the API types: %w", err)
	}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion})
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	c, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("set up the client of the API server: %w", err)
	}
	return c, nil
}
