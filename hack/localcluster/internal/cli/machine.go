package cli

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/cluster"
	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/guest"
)

func machineCommand(f *folders) *cobra.Command {
	cmd := &cobra.Command{
		Use: "machine", Short: "Simulated VMs beside the node, which join the running cluster by kubeadm",
		Long: "A machine is a computer beside the node of the live cluster: namespaces of its own with an SSH server, a container\n" +
			"runtime and a kubelet that is not yet part of any cluster. It does at its start what an instance of Google Cloud does:\n" +
			"it asks a metadata server for SSH keys and a startup script, publishes its host keys and runs the script.",
	}
	cmd.AddCommand(
		machineUpCommand(f),
		&cobra.Command{
			Use: "preempt NAME", Short: "Power a machine off at once; its disk stays, and up starts it again", Args: cobra.ExactArgs(1),
			RunE: f.onCluster(func(ctx context.Context, c cluster.Cluster, args []string) error {
				return c.MachinePreempt(ctx, args[0])
			}),
		},
		&cobra.Command{
			Use: "down NAME...", Short: "Power machines off and remove them; their nodes stay in the cluster", Args: cobra.MinimumNArgs(1),
			RunE: f.onCluster(func(ctx context.Context, c cluster.Cluster, args []string) error {
				for _, name := range args {
					if err := c.MachineDown(ctx, name); err != nil {
						return err
					}
				}
				return nil
			}),
		},
		&cobra.Command{
			Use: "list", Short: "Show the machines", Args: cobra.NoArgs,
			RunE: f.onCluster(func(_ context.Context, c cluster.Cluster, _ []string) error { return c.MachineList() }),
		},
		// These run inside of a machine.
		&cobra.Command{
			Use: "init DISK", Hidden: true, Args: cobra.ExactArgs(1),
			RunE: func(_ *cobra.Command, args []string) error { return guest.Init(args[0]) },
		},
		&cobra.Command{
			Use: "supervise DISK", Hidden: true, Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error { return guest.Supervise(cmd.Context(), args[0]) },
		},
		&cobra.Command{
			Use: "systemctl -- ARGS", Hidden: true, Args: cobra.ArbitraryArgs,
			RunE: func(_ *cobra.Command, args []string) error {
				code, err := guest.Systemctl(args, os.Stdout)
				if err == nil && code != 0 {
					os.Exit(code)
				}
				return err
			},
		},
	)
	return cmd
}

func machineUpCommand(f *folders) *cobra.Command {
	var options cluster.MachineOptions
	cmd := &cobra.Command{
		Use: "up NAME", Short: "Create and start a machine, or start one that is off", Args: cobra.ExactArgs(1),
		Example: "  localcluster machine up gpu-1 --metadata 10.77.0.1:8080 --image trainer:dev",
		RunE: f.onCluster(func(ctx context.Context, c cluster.Cluster, args []string) error {
			return c.MachineUp(ctx, args[0], options)
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&options.Address, "address", "", "address of the machine in the node's network; default: the next free one")
	flags.StringVar(&options.Metadata, "metadata", "", "host and port of the metadata server to which 169.254.169.254 leads; default: none")
	flags.StringVar(&options.StartupScript, "startup-script", "", "script that a machine without metadata server runs at each start")
	flags.StringArrayVar(&options.Images, "image", nil, "one of the node's images that a new machine gets, too; may be repeated (it can pull what was pushed)")
	return cmd
}
