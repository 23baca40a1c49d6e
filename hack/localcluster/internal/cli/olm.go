package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/cluster"
	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/olm"
)

func olmCommand(f *folders, name, what string, open func(cluster.Cluster) (*olm.Service, error)) *cobra.Command {
	cmd := &cobra.Command{Use: name, Short: "Start, stop or look at " + what + " in the running cluster"}
	var timeout time.Duration
	run := func(do func(*olm.Service, context.Context) error) func(*cobra.Command, []string) error {
		return f.onCluster(func(ctx context.Context, c cluster.Cluster, _ []string) error {
			c.Timeout = timeout
			s, err := open(c)
			if err != nil {
				return err
			}
			return do(s, ctx)
		})
	}
	up := &cobra.Command{
		Use: "up", Short: "Build what is missing, start " + what + " and wait until it is ready", Args: cobra.NoArgs,
		RunE: run((*olm.Service).Up),
	}
	up.Flags().DurationVar(&timeout, "timeout", cluster.DefaultTimeout, "how long to wait for each condition of readiness")
	down := &cobra.Command{
		Use: "down", Short: "Remove " + what + " and the operators that it installed", Args: cobra.NoArgs,
		RunE: run((*olm.Service).Down),
	}
	status := &cobra.Command{
		Use: "status", Short: "Show whether it is ready, its catalogs and operators; exit code 1 when it is not", Args: cobra.NoArgs,
		RunE: run(func(s *olm.Service, ctx context.Context) error {
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
