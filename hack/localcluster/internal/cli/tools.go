package cli

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/cluster"
	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/component"
	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/host"
	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/scorecard"
)

func binariesCommand(f *folders) *cobra.Command {
	return buildCommand(f, &cobra.Command{
		Use: "binaries", Short: "Build etcd, kube-apiserver, kubectl and registry, and print their folder for KUBEBUILDER_ASSETS",
		Long:    "Builds the Kubernetes programs and the registry if needed and prints the folder that holds them. Needs no root and no Debian packages.",
		Example: "  export KUBEBUILDER_ASSETS=$(localcluster binaries)",
	}, component.Assets)
}

func programsCommand(f *folders) *cobra.Command {
	return buildCommand(f, &cobra.Command{
		Use: "programs", Short: "Build the programs of a cluster whose node runs pods, and print their folder",
		Long: "Builds all that up would build before it starts such a cluster, if needed. Needs no root and no Debian packages.",
	}, component.Live)
}

func toolsCommand(f *folders) *cobra.Command {
	return buildCommand(f, &cobra.Command{
		Use: "tools", Short: "Build opm, grpc_health_probe and operator-sdk, and print their folder",
		Long:    "Builds the tools for bundles and catalogs of operators if needed and prints the folder that holds them. Needs no root and no cluster.",
		Example: "  PATH=$(localcluster tools):$PATH opm version",
	}, component.Tools)
}

func criuCommand(f *folders) *cobra.Command {
	return &cobra.Command{
		Use: "criu", Short: "Put CRIU beside the programs, so that running containers can be checkpointed, and print its path", Args: cobra.NoArgs,
		Long: "Takes CRIU from Debian if it is not there yet, with the libraries that it needs, and puts it where the node's container\n" +
			"runtime finds it, also of a cluster that is up. The Debian package mmdebstrap is installed when it is missing.",
		Example: "  sudo localcluster criu && localcluster up",
		RunE: f.onLayout(func(ctx context.Context, layout cluster.Layout) error {
			path, err := host.CRIU(ctx, layout.Bin, os.Stderr)
			if err != nil {
				return err
			}
			fmt.Println(path)
			return nil
		}),
	}
}

// buildCommand completes cmd: it builds what use needs and prints the folder of the programs.
func buildCommand(f *folders, cmd *cobra.Command, use component.Use) *cobra.Command {
	cmd.Args = cobra.NoArgs
	cmd.RunE = f.onLayout(func(ctx context.Context, layout cluster.Layout) error {
		// Progress goes to standard error, as the output is for use in a shell.
		builder := component.Builder{Source: layout.Source, Bin: layout.Bin, Out: os.Stderr}
		if err := builder.Ensure(ctx, component.For(use)); err != nil {
			return err
		}
		fmt.Println(layout.Bin)
		return nil
	})
	return cmd
}

func registriesConfCommand(f *folders) *cobra.Command {
	var home bool
	cmd := &cobra.Command{
		Use: "registries-conf", Short: "Print the path of the file by which opm, skopeo and podman find the cluster's registry", Args: cobra.NoArgs,
		Long: "Prints the path of a registries.conf that leads images of the cluster's registry and of the mirrored ones (up --mirror)\n" +
			"to the cluster's registry over plain HTTP. These programs also want a policy.json in ~/.config/containers or\n" +
			"/etc/containers; where there is none, let them have the folder of --home as their home.",
		Example: "  export CONTAINERS_REGISTRIES_CONF=$(localcluster registries-conf)\n" +
			"  HOME=$(localcluster registries-conf --home) opm render registry.example.com/team/catalog:v1",
		RunE: f.onCluster(func(_ context.Context, c cluster.Cluster, _ []string) error {
			if c.Options.Simulate {
				return cluster.ErrSimulated
			}
			path := c.Layout.RegistriesConf()
			if home {
				path = c.Layout.ContainersHome()
			}
			fmt.Println(path)
			return nil
		}),
	}
	cmd.Flags().BoolVar(&home, "home", false, "print a home folder that holds this file and a policy.json")
	return cmd
}

func scorecardImageCommand(f *folders) *cobra.Command {
	return &cobra.Command{
		Use: "scorecard-image", Short: "Build the image of operator-sdk's scorecard tests, load it into the node and print its name", Args: cobra.NoArgs,
		Long: "The image holds the basic and OLM tests of operator-sdk, and what operator-sdk needs to hand a bundle to tests and to\n" +
			"fetch their files.",
		Example: "  image=$(localcluster scorecard-image)\n" +
			"  operator-sdk scorecard bundle --untar-image \"$image\" --storage-image \"$image\" # and image: $image in its config.yaml",
		RunE: f.onCluster(func(ctx context.Context, c cluster.Cluster, _ []string) error {
			// Progress goes to standard error, as the output is for use in a shell.
			c.Out = os.Stderr
			name, err := scorecard.EnsureImage(ctx, c)
			if err != nil {
				return err
			}
			fmt.Println(name)
			return nil
		}),
	}
}
