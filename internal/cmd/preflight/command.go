// Package preflight is the subcommand of the init container that checks, before a training begins, that its workers reach one another.
package preflight

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/dcnlab/spot-training-operator/internal/cmd/logging"
	"github.com/dcnlab/spot-training-operator/internal/cmd/memory"
	"github.com/dcnlab/spot-training-operator/internal/training/preflight"
)

// Environment variables.
const (
	envID      = "PREFLIGHT_ID"
	envPeers   = "PREFLIGHT_PEERS"
	envReplica = "REPLICA_INDEX"
	envPort    = "MASTER_PORT"
	envReport  = "AGENT_PORT"
)

// memoryLimit is where Go's garbage collector begins to try harder.
const memoryLimit = 48 << 20

// New returns the subcommand.
func New() *cobra.Command {
	return &cobra.Command{
		Use:   "network-preflight",
		Short: "Wait until the workers of a training reach one another (runs before each worker)",
		Long: "Wait until the workers of a training reach one another. It runs in the pods of a TrainingJob with\n" +
			"spec.networking.preflight and takes its settings from the environment; see docs/guide/network.md.",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return run(command.Context()) },
	}
}

func run(ctx context.Context) error {
	settings, err := fromEnvironment(os.Getenv)
	if err != nil {
		return err
	}
	memory.Limit(50, memoryLimit)
	settings.Clock, settings.Log = clock.RealClock{}, logging.FromEnvironment()
	if err = preflight.Run(ctx, settings); errors.Is(err, context.Canceled) {
		return errors.New("stopped before all workers reached one another")
	}
	return err
}

// fromEnvironment reads the settings. Its errors name the variable.
func fromEnvironment(env func(string) string) (preflight.Settings, error) {
	s := preflight.Settings{ID: env(envID), Settling: preflight.Settling}
	if s.ID == "" {
		return s, fmt.Errorf("%s: is not set: it must be the same for all workers of the job", envID)
	}
	if peers := env(envPeers); peers != "" {
		s.Peers = strings.Split(peers, ",")
	}
	for _, number := range []struct {
		name        string
		into        *int
		least, most int
	}{
		{envReplica, &s.Replica, 0, len(s.Peers) - 1}, {envPort, &s.Port, 1, 65535}, {envReport, &s.ReportPort, 1, 65535},
	} {
		var err error
		if *number.into, err = strconv.Atoi(env(number.name)); err != nil || *number.into < number.least || *number.into > number.most {
			return s, fmt.Errorf("%s: %q is no number from %d to %d", number.name, env(number.name), number.least, number.most)
		}
	}
	return s, nil
}
