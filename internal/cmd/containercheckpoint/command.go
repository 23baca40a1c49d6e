// Package containercheckpoint is the subcommand of the built-in checkpoint agent, which runs on every node.
package containercheckpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/dcnlab/spot-training-operator/internal/checkpointbackup"
	"github.com/dcnlab/spot-training-operator/internal/cmd/logging"
	"github.com/dcnlab/spot-training-operator/internal/containercheckpoint"
)

// options are the flags.
type options struct {
	settings  containercheckpoint.Settings
	kubelet   containercheckpoint.Kubelet
	freeSpace string
	probes    string
	logLevel  string
}

const serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount/"

// New returns the subcommand.
func New() *cobra.Command {
	var o options
	command := &cobra.Command{
		Use:   "container-checkpoint-agent",
		Short: "Serve the CheckpointBackups of the pods on a node",
		Long: "Serve the CheckpointBackups of the pods on a node: the kubelet and CRIU write the memory of running containers down,\n" +
			"and the agent pushes images from which they go on. It runs on every node; see docs/guide/spot-checkpoints.md.",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return run(command.Context(), o) },
	}
	flags := command.Flags()
	flags.StringVar(&o.settings.Node, "node-name", os.Getenv("NODE_NAME"), "node whose pods are served (environment: NODE_NAME)")
	flags.DurationVar(&o.settings.Yield, "yield", 2*time.Second, "how long another agent may begin a checkpoint first; 0s where there is none")
	flags.IntVar(&o.settings.Concurrency, "concurrency", 2, "number of pods that are checkpointed at the same time")
	flags.StringVar(&o.settings.Directory, "checkpoints-directory", "/var/lib/kubelet/checkpoints", "where the kubelet's folder of checkpoints is mounted")
	flags.StringVar(&o.settings.Programs, "programs-directory", "/host/usr", "where the node's /usr is mounted, to look for CRIU's plugins for GPUs")
	flags.StringVar(&o.freeSpace, "min-free-space", "1Gi", "space that must be free on the node's disk before a checkpoint is taken")
	flags.DurationVar(&o.settings.PushTimeout, "push-timeout", 30*time.Minute, "how long pushing one image may take")
	flags.StringSliceVar((*[]string)(&o.settings.Insecure), "insecure-registry", nil,
		"registry (host or host:port) to which plain HTTP is allowed, and that may be on this machine; can be repeated")
	flags.StringVar(&o.kubelet.Address, "kubelet-address", net.JoinHostPort(cmp.Or(os.Getenv("HOST_IP"), "127.0.0.1"), "10250"),
		"host:port of the node's kubelet (environment: HOST_IP)")
	flags.StringVar(&o.kubelet.TokenFile, "kubelet-token-file", serviceAccount+"token", "token for the kubelet")
	flags.StringVar(&o.kubelet.AuthoritiesFile, "kubelet-authorities", serviceAccount+"ca.crt",
		"certificate authorities of the kubelet; on the agent's own machine any certificate will do")
	flags.DurationVar(&o.kubelet.Timeout, "checkpoint-timeout", 10*time.Minute, "how long the checkpoint of one container may take")
	flags.StringVar(&o.probes, "health-probe-bind-address", "127.0.0.1:19652", "address of /healthz and /readyz")
	flags.StringVar(&o.logLevel, "log-level", cmp.Or(os.Getenv("LOG_LEVEL"), "info"), "debug, info, warn or error (environment: LOG_LEVEL)")
	return command
}

// complete checks the flags and fills in the settings. Its errors name the flag.
func (o *options) complete() error {
	if o.settings.Node == "" {
		return errors.New("--node-name: is not set: name the node that the agent runs on, or set NODE_NAME from spec.nodeName")
	}
	space, err := resource.ParseQuantity(o.freeSpace)
	if err != nil || space.Sign() < 0 {
		return fmt.Errorf("--min-free-space: %q is no amount of bytes: write for example 1Gi", o.freeSpace)
	}
	o.settings.FreeSpace = uint64(space.Value()) //nolint:gosec // its sign is checked above
	if o.settings.Concurrency < 1 {
		return fmt.Errorf("--concurrency: %d is less than 1", o.settings.Concurrency)
	}
	for flag, value := range map[string]time.Duration{"--push-timeout": o.settings.PushTimeout, "--checkpoint-timeout": o.kubelet.Timeout} {
		if value < time.Second {
			return fmt.Errorf("%s: %s is less than 1s", flag, value)
		}
	}
	if o.settings.Yield < 0 {
		return fmt.Errorf("--yield: %s is less than 0s", o.settings.Yield)
	}
	if _, _, err := net.SplitHostPort(o.kubelet.Address); err != nil {
		return fmt.Errorf("--kubelet-address: %q is not host:port: %w", o.kubelet.Address, err)
	}
	return nil
}

func run(ctx context.Context, o options) error {
	if err := o.complete(); err != nil {
		return err
	}
	if _, err := logging.Start(o.logLevel); err != nil {
		return err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the cluster: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return fmt.Errorf("register the API types: %w", err)
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme,
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject: map[client.Object]cache.ByObject{
				&corev1.Pod{}: {Field: fields.OneTermEqualSelector("spec.nodeName", o.settings.Node)},
			},
		},
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: o.probes,
	})
	if err != nil {
		return fmt.Errorf("set up the agent: %w", err)
	}
	backups, err := checkpointbackup.ForManager(mgr)
	if err != nil {
		return err
	}
	agent := &containercheckpoint.Agent{
		Settings: o.settings, Kubelet: o.kubelet, Backups: backups,
		Client: mgr.GetClient(), Direct: mgr.GetAPIReader(), Clock: clock.RealClock{},
	}
	if err := agent.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("set up the checkpoint agent: %w", err)
	}
	err = errors.Join(mgr.AddHealthzCheck("healthz", healthz.Ping), mgr.AddReadyzCheck("readyz", healthz.Ping))
	if err != nil {
		return fmt.Errorf("add the health checks: %w", err)
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("run the agent: %w", err)
	}
	return nil
}
