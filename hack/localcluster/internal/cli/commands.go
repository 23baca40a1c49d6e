package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/cluster"
	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/component"
	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/host"
	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/provision"
)

func downCommand(f *folders) *cobra.Command {
	var keepData bool
	cmd := &cobra.Command{
		Use: "down", Short: "Stop the cluster and remove what it left on the machine", Args: cobra.NoArgs,
		RunE: f.onLayout(func(ctx context.Context, layout cluster.Layout) error {
			return cluster.Cluster{Layout: layout, Out: os.Stdout}.Down(ctx, keepData)
		}),
	}
	cmd.Flags().BoolVar(&keepData, "keep-data", false, "keep etcd's data, images and volumes for the next up")
	return cmd
}

func statusCommand(f *folders) *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show the cluster's processes and whether it is ready; exit code 1 when it is not", Args: cobra.NoArgs,
		RunE: f.onLayout(func(ctx context.Context, layout cluster.Layout) error {
			ready, err := cluster.Cluster{Layout: layout, Out: os.Stdout}.Status(ctx)
			if err == nil && !ready {
				return ErrNotReady
			}
			return err
		}),
	}
}

// ErrNotReady is returned by status, which has already said why.
var ErrNotReady = errors.New("the cluster is not ready")

func kubeconfigCommand(f *folders) *cobra.Command {
	var raw bool
	cmd := &cobra.Command{
		Use: "kubeconfig", Short: "Print the path of the administrator's kubeconfig", Args: cobra.NoArgs,
		Example: "  export KUBECONFIG=$(localcluster kubeconfig)",
		RunE: f.onCluster(func(_ context.Context, c cluster.Cluster, _ []string) error {
			if !raw {
				fmt.Println(c.Layout.Kubeconfig())
				return nil
			}
			content, err := os.ReadFile(c.Layout.Kubeconfig())
			if err != nil {
				return err
			}
			_, err = os.Stdout.Write(content)
			return err
		}),
	}
	cmd.Flags().BoolVar(&raw, "raw", false, "print the content instead of the path")
	return cmd
}

func prepareDepsCommand(f *folders) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: "prepare-deps", Short: "Download the Go modules and install the Debian packages, so that up needs no network", Args: cobra.NoArgs,
		RunE: f.onLayout(func(ctx context.Context, layout cluster.Layout) error {
			builder := component.Builder{Source: layout.Source, Bin: layout.Bin, Out: os.Stdout}
			components := component.For(component.Cluster)
			if all {
				components = component.All()
			}
			if err := builder.Download(ctx, components); err != nil {
				return err
			}
			if os.Geteuid() != 0 {
				fmt.Println("not root: Debian packages are left out; simulated clusters do without them")
				return nil
			}
			packages := host.NodePackages()
			if all {
				packages = append(packages, host.ImagePackages()...)
			}
			return host.Install(ctx, packages, os.Stdout)
		}),
	}
	cmd.Flags().BoolVar(&all, "all", false, "also what olm, olmv1, tools and scorecard-image need")
	return cmd
}

func loadImageCommand(f *folders) *cobra.Command {
	return &cobra.Command{
		Use: "load-image ARCHIVE...", Short: "Load image archives (docker save or OCI) into the node's images", Args: cobra.MinimumNArgs(1),
		RunE: f.onCluster(func(ctx context.Context, c cluster.Cluster, archives []string) error {
			for _, path := range archives {
				archive, err := os.Open(path)
				if err != nil {
					return err
				}
				names, err := c.LoadImage(ctx, archive)
				archive.Close()
				if errors.Is(err, cluster.ErrSimulated) {
					fmt.Println("nothing loaded:", err)
					return nil
				}
				if err != nil {
					return fmt.Errorf("%s: %w", path, err)
				}
				fmt.Println("loaded", strings.Join(names, ", "))
			}
			return nil
		}),
	}
}

// provisionerCommand is the background process that makes volumes; up starts it.
func provisionerCommand() *cobra.Command {
	var kubeconfig, name, volumes string
	cmd := &cobra.Command{
		Use: "provisioner", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return provision.Run(cmd.Context(), kubeconfig, name, volumes)
		},
	}
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig to use")
	cmd.Flags().StringVar(&name, "name", "", "provisioner name in StorageClasses")
	cmd.Flags().StringVar(&volumes, "volumes", "", "folder of the volumes")
	return cmd
}
