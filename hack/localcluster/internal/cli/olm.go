package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/cluster"
	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/olm"
	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/olmv1"
)

// service is a part of a live cluster that is started and stopped by itself.
type service interface {
	Up(context.Context) error
	Down(context.Context) error
	Status(context.Context) (ready bool, err error)
}

func olmCommand(f *folders) *cobra.Command {
	return serviceCommand(f, "olm", "the Operator Lifecycle Manager (v0)", func(c cluster.Cluster) (service, error) { return olm.New(c) })
}

func olmv1Command(f *folders) *cobra.Command {
	return serviceCommand(f, "olmv1", "the second generation of the Operator Lifecycle Manager", func(c cluster.Cluster) (service, error) { return olmv1.New(c) })
}

// serviceCommand returns the command name with up, down and status.
func serviceCommand(f *folders, name, what string, open func(cluster.Cluster) (service, error)) *cobra.Command {
	cmd := &cobra.Command{Use: name, Short: "Start, stop or look at " + what + " in the running cluster"}
	var timeout time.Duration
	get := func() (service, error) {
		c, err := f.open()
		if err != nil {
			return nil, err
		}
		c.Timeout = timeout
		return open(c)
	}
	up := &cobra.Command{
		Use: "up", Short: "Build what is missing, start " + what + " and wait until it is ready", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := get()
			if err != nil {
				return err
			}
			return s.Up(cmd.Context())
		},
	}
	up.Flags().DurationVar(&timeout, "timeout", cluster.DefaultTimeout, "how long to wait for each condition of readiness")
	down := &cobra.Command{
		Use: "down", Short: "Remove " + what + " and the operators that it installed", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := get()
			if err != nil {
				return err
			}
			return s.Down(cmd.Context())
		},
	}
	status := &cobra.Command{
		Use: "status", Short: "Show whether it is ready, its catalogs and operators; exit code 1 when it is not", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := get()
			if err != nil {
				return err
			}
			ready, err := s.Status(cmd.Context())
			if err == nil && !ready {
				return ErrNotReady
			}
			return err
		},
	}
	cmd.AddCommand(up, down, status)
	return cmd
}
