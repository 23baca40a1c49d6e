package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/cluster"
	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/olm"
)

func olmCommand(f *folders) *cobra.Command {
	return serviceCommand(f, "olm", "the Operator Lifecycle Manager (v0)", olm.New)
}

func olmv1Command(f *folders) *cobra.Command {
	return serviceCommand(f, "olmv1", "the second generation of the Operator Lifecycle Manager", olm.NewV1)
}

func serviceCommand(f *folders, name, what string, open func(cluster.Cluster) (*olm.Service, error)) *cobra.Command {
	cmd := &cobra.Command{Use: name, Short: "Start, stop or look at " + what + " in the running cluster"}
	var timeout time.Duration
	run := func(do func(context.Context, *olm.Service) error) func(*cobra.Command, []string) error {
		return f.onCluster(func(ctx context.Context, c cluster.Cluster, _ []string) error {
			c.Timeout = timeout
			s, err := open(c)
			if err != nil {
				return err
			}
			return do(ctx, s)
		})
	}
	up := &cobra.Command{
		Use: "up", Short: "Build what is missing, start " + what + " and wait until it is ready", Args: cobra.NoArgs,
		RunE: run(func(ctx context.Context, s *olm.Service) error { return s.Up(ctx) }),
	}
	up.Flags().DurationVar(&timeout, "timeout", cluster.DefaultTimeout, "how long to wait for each condition of readiness")
	down := &cobra.Command{
		Use: "down", Short: "Remove " + what + " and the operators that it installed", Args: cobra.NoArgs,
		RunE: run(func(ctx context.Context, s *olm.Service) error { return s.Down(ctx) }),
	}
	status := &cobra.Command{
		Use: "status", Short: "Show whether it is ready, its catalogs and operators; exit code 1 when it is not", Args: cobra.NoArgs,
		RunE: run(func(ctx context.Context, s *olm.Service) error {
			ready, err := s.Status(ctx)
			if err == nil && !ready {
				return ErrNotReady
			}
			return err
		}),
	}
	cmd.AddCommand(up, down, status)
	return cmd
}
